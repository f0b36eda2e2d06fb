/* nm-box seat take FROM TO INTERFACE: gives an interface in the network namespace TO the MAC and the address
 * of the interface with the same name in FROM, in addition to its own address. Only one of both may be
 * connected at a time.
 *
 * nm-box seat up|down NETNS INTERFACE: connects or disconnects the interface at the node's end of an
 * instance's link. The instance keeps its address and its routes. */
#define _GNU_SOURCE
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int socket_in(const char *netns) {
    join_namespace(open_namespace(netns), CLONE_NEWNET, netns);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket", netns);
    return fd;
}

static struct ifreq asked(int fd, unsigned long what, const char *interface) {
    struct ifreq request = {.ifr_flags = 0};
    if (strlen(interface) >= sizeof request.ifr_name)
        refuse("not the name of an interface", interface);
    strcpy(request.ifr_name, interface);
    if (ioctl(fd, what, &request) != 0)
        die("ask", interface);
    return request;
}

static void add_address(struct in_addr address, const char *interface) {
    struct {
        struct nlmsghdr head;
        struct ifaddrmsg what;
        struct rtattr attribute;
        struct in_addr local;
    } message = {.head = {.nlmsg_type = RTM_NEWADDR, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE},
                 .what = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = if_nametoindex(interface)},
                 .attribute = {.rta_type = IFA_LOCAL, .rta_len = RTA_LENGTH(sizeof address)},
                 .local = address};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer;
    message.head.nlmsg_len = sizeof message;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &message, sizeof message, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
        die("netlink", interface);
    close(fd);
    errno = -answer.error.error;
    if (answer.head.nlmsg_type == NLMSG_ERROR && errno != 0 && errno != EEXIST)
        die("add the address to", interface);
}

static void take(const char *from, const char *to, const char *interface) {
    int here = socket_in(from);
    struct ifreq mac = asked(here, SIOCGIFHWADDR, interface), address = asked(here, SIOCGIFADDR, interface);
    struct sockaddr_in of;
    memcpy(&of, &address.ifr_addr, sizeof of);
    close(here);
    int there = socket_in(to);
    if (ioctl(there, SIOCSIFHWADDR, &mac) != 0)
        die("set the MAC of", interface);
    add_address(of.sin_addr, interface);
    close(there);
}

static void connect_port(const char *netns, const char *interface, bool up) {
    int fd = socket_in(netns);
    struct ifreq request = asked(fd, SIOCGIFFLAGS, interface);
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        die(up ? "bring up" : "take down", interface);
    close(fd);
}

int seat_main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const bool up = strcmp(what, "up") == 0;
    if (argc == 5 && strcmp(what, "take") == 0)
        take(argv[2], argv[3], argv[4]);
    else if (argc == 4 && (up || strcmp(what, "down") == 0))
        connect_port(argv[2], argv[3], up);
    else
        refuse("usage: nm-box seat take FROM TO INTERFACE | up|down NETNS INTERFACE", what);
    return 0;
}
