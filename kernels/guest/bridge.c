/* Network namespaces for the containers of a guest, connected by veth pairs and a bridge. The bridge is in
 * the first namespace, the hub, and has an address. This uses rtnetlink, so it needs no program of the image.
 */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char parent[] = "/run/netns";
enum { PATH_ROOM = 256, MESSAGE_ROOM = 1024 };

/* An rtnetlink message that creates a link. */
struct message {
    _Alignas(struct nlmsghdr) char buffer[MESSAGE_ROOM];
};

static struct nlmsghdr *head_of(struct message *m) {
    return (struct nlmsghdr *)m->buffer;
}

static void append(struct message *m, unsigned short type, const void *data, size_t size) {
    struct nlmsghdr *head = head_of(m);
    struct rtattr *at = (struct rtattr *)(m->buffer + NLMSG_ALIGN(head->nlmsg_len));
    at->rta_type = type;
    at->rta_len = (unsigned short)RTA_LENGTH(size);
    memcpy(RTA_DATA(at), data, size);
    head->nlmsg_len = (uint32_t)(NLMSG_ALIGN(head->nlmsg_len) + RTA_ALIGN(at->rta_len));
}

static void append_number(struct message *m, unsigned short type, uint32_t value) {
    append(m, type, &value, sizeof value);
}

/* Begin a nested attribute. The result is passed to end(). */
static size_t begin(struct message *m, unsigned short type) {
    size_t at = NLMSG_ALIGN(head_of(m)->nlmsg_len);
    append(m, type, "", 0);
    return at;
}

static void end(struct message *m, size_t at) {
    ((struct rtattr *)(m->buffer + at))->rta_len = (unsigned short)(head_of(m)->nlmsg_len - at);
}

static struct message new_link(const char *name) {
    struct message m = {{0}};
    *head_of(&m) = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                                     .nlmsg_type = RTM_NEWLINK,
                                     .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL};
    *(struct ifinfomsg *)NLMSG_DATA(head_of(&m)) =
        (struct ifinfomsg){.ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    append(&m, IFLA_IFNAME, name, strlen(name) + 1);
    return m;
}

static void request(struct message *m, const char *what) {
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[1024];
    } answer = {.error = {.error = -EIO}};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, m->buffer, head_of(m)->nlmsg_len, 0) < 0 ||
        recv(fd, &answer, sizeof answer, 0) < 0)
        give_up("netlink", what);
    close(fd);
    errno = -answer.error.error;
    if (errno != 0)
        give_up("make a link: has the kernel its driver?", what);
}

static void make_bridge(const char *bridge) {
    struct message m = new_link(bridge);
    size_t kind = begin(&m, IFLA_LINKINFO);
    append(&m, IFLA_INFO_KIND, "bridge", sizeof "bridge");
    end(&m, kind);
    request(&m, "bridge");
}

/* Create a veth pair from a port of the bridge to a namespace. */
static void make_pair(const char *port, const char *bridge, int namespace, const char *seat, uint32_t mtu) {
    struct message m = new_link(port);
    append_number(&m, IFLA_MASTER, if_nametoindex(bridge));
    if (mtu != 0)
        append_number(&m, IFLA_MTU, mtu);
    size_t info = begin(&m, IFLA_LINKINFO);
    append(&m, IFLA_INFO_KIND, "veth", sizeof "veth");
    size_t data = begin(&m, IFLA_INFO_DATA), peer = begin(&m, VETH_INFO_PEER);
    struct ifinfomsg none = {.ifi_family = AF_UNSPEC};
    /* The peer's struct ifinfomsg stands without an attribute header before the peer's attributes. */
    memcpy(m.buffer + head_of(&m)->nlmsg_len, &none, sizeof none);
    head_of(&m)->nlmsg_len += NLMSG_ALIGN(sizeof none);
    append(&m, IFLA_IFNAME, seat, strlen(seat) + 1);
    append_number(&m, IFLA_NET_NS_FD, (uint32_t) namespace);
    if (mtu != 0)
        append_number(&m, IFLA_MTU, mtu);
    end(&m, peer);
    end(&m, data);
    end(&m, info);
    request(&m, "veth");
}

static void path_of(char path[PATH_ROOM], const char *name) {
    if (snprintf(path, PATH_ROOM, "%s/%s", parent, name) >= PATH_ROOM)
        give_up("too long a name", name);
}

/* The names of the namespaces that this process has created so far. */
static struct {
    char **names;
    int count;
} made;

/* After a failure, remove the namespaces that this process has created, but not those that existed before. */
static void drop_made(void) {
    (void)drop_namespaces(made.count, made.names);
}

/* Create a namespace with a name, and enter it. Return its descriptor. */
static int make_namespace(const char *name) {
    char path[PATH_ROOM];
    path_of(path, name);
    (void)mkdir("/run", 0755);
    (void)mkdir(parent, 0755);
    int file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file < 0)
        give_up("make a namespace", path);
    made.count++;
    close(file);
    if (unshare(CLONE_NEWNET) != 0 || mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL) != 0)
        give_up("make a namespace", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        give_up("open", path);
    return fd;
}

/* Split "NAME=INTERFACE,ADDRESS/PREFIX[,MTU]" at the "=". Return the second part, which has the form of
 * nm.net. */
static const char *split(char *word) {
    char *equals = strchr(word, '=');
    if (equals == NULL)
        give_up("not NAME=INTERFACE,ADDRESS/PREFIX[,MTU]", word);
    *equals = '\0';
    return equals + 1;
}

static void interface_of(char name[IFNAMSIZ], const char *net) {
    snprintf(name, IFNAMSIZ, "%.*s", (int)strcspn(net, ","), net);
}

static uint32_t mtu_of(const char *net) {
    const char *address = strchr(net, ','), *mtu = address != NULL ? strchr(address + 1, ',') : NULL;
    return mtu != NULL ? (uint32_t)atoi(mtu + 1) : 0;
}

static void join(int namespace, const char *name) {
    if (setns(namespace, CLONE_NEWNET) != 0)
        give_up("enter a namespace", name);
}

static void settle(const char *net, const char *tuning) {
    struct given given = {.name = ""};
    if (strlen(net) >= sizeof given.net || strlen(tuning) >= sizeof given.tune)
        give_up("too long", net);
    strcpy(given.net, net);
    strcpy(given.tune, tuning);
    make_network(&given);
}

int make_namespaces(const char *tuning, int count, char **words) {
    const char *nets[NAMESPACES_MAX];
    int namespaces[NAMESPACES_MAX];
    if (count > NAMESPACES_MAX)
        give_up("too many namespaces", words[0]);
    made.names = words;
    if (atexit(drop_made) != 0)
        give_up("register the removal of namespaces", words[0]);
    for (int i = 0; i < count; i++) {
        nets[i] = split(words[i]);
        namespaces[i] = make_namespace(words[i]);
    }
    char bridge[IFNAMSIZ], port[IFNAMSIZ], seat[IFNAMSIZ];
    join(namespaces[0], words[0]);
    interface_of(bridge, nets[0]);
    make_bridge(bridge);
    for (int i = 1; i < count; i++) {
        snprintf(port, sizeof port, "port%d", i - 1);
        interface_of(seat, nets[i]);
        make_pair(port, bridge, namespaces[i], seat, mtu_of(nets[i]));
    }
    for (int i = 0; i < count; i++) {
        join(namespaces[i], words[i]);
        settle(nets[i], i == 0 ? "" : tuning);
    }
    made.count = 0;
    return 0;
}

int drop_namespaces(int count, char **names) {
    int status = 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_ROOM];
        path_of(path, names[i]);
        (void)umount2(path, MNT_DETACH);
        if (unlink(path) != 0 && errno != ENOENT) {
            say("remove", path);
            status = 1;
        }
    }
    return status;
}
