/* Changes and reads settings of the guest's interface and of its routes. Routes are used instead of sysctls,
 * which would affect other interfaces. */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUTES_MAX = 16, MESSAGE_MAX = 512, LONGEST_NAME = 16 };

/* Offloads by their names in a study, with the ethtool commands that read and set them. */
static const struct {
    const char *name;
    uint32_t get, set;
} offloads[] = {{"tso", ETHTOOL_GTSO, ETHTOOL_STSO},
                {"gso", ETHTOOL_GGSO, ETHTOOL_SGSO},
                {"gro", ETHTOOL_GGRO, ETHTOOL_SGRO}};
enum { OFFLOADS = sizeof offloads / sizeof *offloads };

/* Metrics of a route. rto_min: ms; 0 and "" stand for the kernel's defaults. */
struct metrics {
    uint32_t rto_min;
    char congestion_control[LONGEST_NAME];
};

struct route {
    char message[MESSAGE_MAX];
};

static bool ask(int fd, unsigned long what, const char *interface, void *data) {
    struct ifreq request = {.ifr_flags = 0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    request.ifr_data = data;
    return ioctl(fd, what, &request) == 0;
}

static void set_offload(int fd, const char *interface, const char *name, const char *on) {
    for (int i = 0; i < OFFLOADS; i++) {
        struct ethtool_value value = {.cmd = offloads[i].set, .data = (uint32_t)atoi(on)};
        if (strcmp(offloads[i].name, name) != 0)
            continue;
        if (!ask(fd, SIOCETHTOOL, interface, &value))
            give_up("its card cannot have this offload switched", name);
        return;
    }
    give_up("no such setting", name);
}

static void set_queue(int fd, const char *interface, const char *packets) {
    struct ifreq request = {.ifr_flags = 0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    request.ifr_qlen = atoi(packets);
    if (ioctl(fd, SIOCSIFTXQLEN, &request) != 0)
        give_up("set the transmit queue", packets);
}

static struct rtattr *attribute_of(struct nlmsghdr *head, unsigned short type) {
    struct rtmsg *route = NLMSG_DATA(head);
    unsigned left = (unsigned)RTM_PAYLOAD(head);
    for (struct rtattr *at = RTM_RTA(route); RTA_OK(at, left); at = RTA_NEXT(at, left))
        if ((at->rta_type & NLA_TYPE_MASK) == type)
            return at;
    return NULL;
}

static bool leaves_by(struct nlmsghdr *head, unsigned index) {
    struct rtmsg *route = NLMSG_DATA(head);
    struct rtattr *out = attribute_of(head, RTA_OIF);
    return head->nlmsg_type == RTM_NEWROUTE && head->nlmsg_len <= MESSAGE_MAX &&
           route->rtm_table == RT_TABLE_MAIN && route->rtm_type == RTN_UNICAST && out != NULL &&
           memcmp(RTA_DATA(out), &index, sizeof index) == 0;
}

/* Find the IPv4 routes through an interface. Return their number. */
static int find_routes(int fd, unsigned index, struct route found[ROUTES_MAX]) {
    struct {
        struct nlmsghdr head;
        struct rtmsg what;
    } question = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof question.what),
                           .nlmsg_type = RTM_GETROUTE,
                           .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                  .what = {.rtm_family = AF_INET}};
    static _Alignas(struct nlmsghdr) char answer[1 << 15];
    int count = 0;
    if (send(fd, &question, question.head.nlmsg_len, 0) < 0)
        give_up("netlink", "routes");
    for (;;) {
        ssize_t size = recv(fd, answer, sizeof answer, 0);
        if (size < 0)
            give_up("netlink", "routes");
        unsigned left = (unsigned)size;
        for (struct nlmsghdr *at = (struct nlmsghdr *)answer; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            if (at->nlmsg_type == NLMSG_DONE || at->nlmsg_type == NLMSG_ERROR)
                return count;
            if (count < ROUTES_MAX && leaves_by(at, index))
                memcpy(found[count++].message, at, at->nlmsg_len);
        }
    }
}

static void append(struct nlmsghdr *head, unsigned short type, const void *data, size_t size) {
    struct rtattr *at = (struct rtattr *)((char *)head + NLMSG_ALIGN(head->nlmsg_len));
    at->rta_type = type;
    at->rta_len = (unsigned short)RTA_LENGTH(size);
    memcpy(RTA_DATA(at), data, size);
    head->nlmsg_len = (uint32_t)(NLMSG_ALIGN(head->nlmsg_len) + RTA_ALIGN(at->rta_len));
}

/* Replace a route by one with these metrics. rto_min must be locked, since sockets ignore it otherwise
 * (tcp_rto_min() in net/ipv4/tcp_output.c). */
static void replace_route(int fd, struct nlmsghdr *had, const struct metrics *metrics) {
    _Alignas(struct nlmsghdr) char buffer[2 * MESSAGE_MAX] = {0};
    struct nlmsghdr *head = (struct nlmsghdr *)buffer;
    struct rtmsg *route = NLMSG_DATA(had);
    unsigned left = (unsigned)RTM_PAYLOAD(had);
    *head = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(sizeof *route),
                              .nlmsg_type = RTM_NEWROUTE,
                              .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE};
    memcpy(NLMSG_DATA(head), route, sizeof *route);
    ((struct rtmsg *)NLMSG_DATA(head))->rtm_flags &= RTNH_F_ONLINK;
    for (struct rtattr *at = RTM_RTA(route); RTA_OK(at, left); at = RTA_NEXT(at, left))
        if ((at->rta_type & NLA_TYPE_MASK) != RTA_METRICS && at->rta_type != RTA_CACHEINFO)
            append(head, at->rta_type, RTA_DATA(at), RTA_PAYLOAD(at));
    size_t begin = NLMSG_ALIGN(head->nlmsg_len);
    append(head, RTA_METRICS, "", 0);
    if (metrics->rto_min != 0) {
        uint32_t lock = 1u << RTAX_RTO_MIN;
        append(head, RTAX_LOCK, &lock, sizeof lock);
        append(head, RTAX_RTO_MIN, &metrics->rto_min, sizeof metrics->rto_min);
    }
    if (metrics->congestion_control[0] != '\0')
        append(head, RTAX_CC_ALGO, metrics->congestion_control, strlen(metrics->congestion_control) + 1);
    ((struct rtattr *)(buffer + begin))->rta_len = (unsigned short)(head->nlmsg_len - begin);
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[1024];
    } answer = {.error = {.error = -EIO}};
    if (send(fd, head, head->nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
        give_up("netlink", "routes");
    errno = -answer.error.error;
    if (errno != 0)
        give_up("its kernel does not take this on a route: has it the congestion control?",
                metrics->congestion_control);
}

static int route_socket(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        give_up("socket", "netlink");
    return fd;
}

static void set_metrics(const char *interface, const struct metrics *metrics) {
    static _Alignas(struct nlmsghdr) struct route found[ROUTES_MAX];
    int fd = route_socket();
    int count = find_routes(fd, if_nametoindex(interface), found);
    for (int i = 0; i < count; i++)
        replace_route(fd, (struct nlmsghdr *)found[i].message, metrics);
    close(fd);
}

void tune(const char *interface, const char *text) {
    struct metrics metrics = {.rto_min = 0};
    char words[256];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        give_up("socket", "tune");
    snprintf(words, sizeof words, "%s", text);
    char *rest = words;
    for (char *word; rest != NULL && (word = strsep(&rest, ",")) != NULL;) {
        char *value = word, *key = strsep(&value, "=");
        if (value == NULL)
            continue;
        if (strcmp(key, "rto_min") == 0)
            metrics.rto_min = (uint32_t)atoi(value);
        else if (strcmp(key, "congestion_control") == 0)
            snprintf(metrics.congestion_control, sizeof metrics.congestion_control, "%s", value);
        else if (strcmp(key, "queue_length") == 0)
            set_queue(fd, interface, value);
        else
            set_offload(fd, interface, key, value);
    }
    close(fd);
    if (metrics.rto_min != 0 || metrics.congestion_control[0] != '\0')
        set_metrics(interface, &metrics);
}

static void usual_control(char name[LONGEST_NAME]) {
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "re");
    if (file != NULL && fscanf(file, "%15s", name) != 1)
        name[0] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Return the metrics of the route through the interface with the shortest prefix. */
static struct metrics read_metrics(const char *interface) {
    static _Alignas(struct nlmsghdr) struct route found[ROUTES_MAX];
    struct metrics out = {.rto_min = 0};
    struct nlmsghdr *widest = NULL;
    int fd = route_socket();
    int count = find_routes(fd, if_nametoindex(interface), found);
    close(fd);
    for (int i = 0; i < count; i++) {
        struct nlmsghdr *head = (struct nlmsghdr *)found[i].message;
        struct rtmsg *own = NLMSG_DATA(head), *best = widest != NULL ? NLMSG_DATA(widest) : NULL;
        if (best == NULL || own->rtm_dst_len < best->rtm_dst_len)
            widest = head;
    }
    struct rtattr *all = widest != NULL ? attribute_of(widest, RTA_METRICS) : NULL;
    if (all == NULL)
        return out;
    unsigned left = (unsigned)RTA_PAYLOAD(all);
    uint32_t lock = 0, rto_min = 0;
    for (struct rtattr *at = RTA_DATA(all); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        if (at->rta_type == RTAX_LOCK)
            memcpy(&lock, RTA_DATA(at), sizeof lock);
        else if (at->rta_type == RTAX_RTO_MIN)
            memcpy(&rto_min, RTA_DATA(at), sizeof rto_min);
        else if (at->rta_type == RTAX_CC_ALGO)
            snprintf(out.congestion_control, sizeof out.congestion_control, "%.*s", (int)RTA_PAYLOAD(at),
                     (const char *)RTA_DATA(at));
    }
    out.rto_min = (lock & 1u << RTAX_RTO_MIN) != 0 ? rto_min : 0;
    return out;
}

int print_network(const char *interface, const char *namespace) {
    int place = namespace != NULL ? open(namespace, O_RDONLY | O_CLOEXEC) : -1;
    if (namespace != NULL && (place < 0 || setns(place, CLONE_NEWNET) != 0))
        return fail_report("%s: %s", namespace, strerror(errno)), 1;
    struct ifreq mtu = {.ifr_flags = 0}, queue;
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(mtu.ifr_name, sizeof mtu.ifr_name, "%s", interface);
    queue = mtu;
    if (fd < 0 || ioctl(fd, SIOCGIFMTU, &mtu) != 0 || ioctl(fd, SIOCGIFTXQLEN, &queue) != 0)
        return fail_report("%s: %s", interface, strerror(errno)), 1;
    if (!ask(fd, SIOCETHTOOL, interface, &driver))
        driver.driver[0] = '\0';
    struct metrics metrics = read_metrics(interface);
    if (metrics.congestion_control[0] == '\0')
        usual_control(metrics.congestion_control);
    printf("{\"interface\": \"%s\", \"driver\": \"%s\", \"mtu\": %d, \"queue_length\": %d", interface,
           driver.driver, mtu.ifr_mtu, queue.ifr_qlen);
    for (int i = 0; i < OFFLOADS; i++) {
        struct ethtool_value value = {.cmd = offloads[i].get};
        const char *state = !ask(fd, SIOCETHTOOL, interface, &value) ? "null" : value.data ? "true" : "false";
        printf(", \"%s\": %s", offloads[i].name, state);
    }
    printf(", \"congestion_control\": \"%s\"", metrics.congestion_control);
    if (metrics.rto_min != 0)
        printf(", \"rto_min\": %u.%03u}\n", metrics.rto_min / 1000, metrics.rto_min % 1000);
    else
        printf(", \"rto_min\": null}\n");
    close(fd);
    return 0;
}
