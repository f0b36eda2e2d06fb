/* nm-box tap --netns PATH --interface NAME: puts a virtual machine in the place of an interface. The guest
 * takes over the MAC and the address of the interface, so that nothing changes for others. A bridge connects
 * the interface to a tap or, with --macvtap, the interface is a macvtap itself.
 *
 * Without a command, this creates the bridge unless it exists, and prints as JSON the settings that the guest
 * needs. With a command, it opens the tap as descriptor TAP_FD (and with --vhost, vhost as VHOST_FD), and
 * executes the command. The tap vanishes with its last descriptor, the bridge with the namespace. */
#define _GNU_SOURCE
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_bridge.h>
#include <linux/if_tun.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TAP_FD = 30, VHOST_FD = 31 };

#define BRIDGE "nmbridge"

static struct ifreq named(const char *interface) {
    struct ifreq request = {.ifr_flags = 0};
    if (strlen(interface) >= sizeof request.ifr_name)
        refuse("not the name of an interface", interface);
    strcpy(request.ifr_name, interface);
    return request;
}

static struct ifreq ask(int fd, unsigned long what, const char *interface, const char *step) {
    struct ifreq request = named(interface);
    if (ioctl(fd, what, &request) != 0)
        die(step, interface);
    return request;
}

static void bring_up(int fd, const char *interface) {
    struct ifreq request = ask(fd, SIOCGIFFLAGS, interface, "flags of");
    request.ifr_flags |= IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        die("bring up", interface);
}

static void add_port(int fd, const char *interface) {
    struct ifreq request = named(BRIDGE);
    request.ifr_ifindex = (int)if_nametoindex(interface);
    if (ioctl(fd, SIOCBRADDIF, &request) != 0)
        die("join to the bridge", interface);
}

/* Remove the interface's MAC from the bridge's table. The bridge takes frames to the MAC of a port for its
 * own, but this MAC now belongs to the guest behind the tap. */
static void release_address(const char *interface, const unsigned char mac[6]) {
    struct {
        struct nlmsghdr head;
        struct ndmsg what;
        struct rtattr attribute;
        unsigned char mac[8];
    } message = {.head = {.nlmsg_type = RTM_DELNEIGH, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
                 .what = {.ndm_family = PF_BRIDGE,
                          .ndm_ifindex = (int)if_nametoindex(interface),
                          .ndm_state = NUD_PERMANENT,
                          .ndm_flags = NTF_MASTER},
                 .attribute = {.rta_type = NDA_LLADDR, .rta_len = RTA_LENGTH(6)}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer;
    message.head.nlmsg_len = NLMSG_LENGTH(sizeof message.what) + RTA_SPACE(6);
    memcpy(message.mac, mac, 6);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &message, message.head.nlmsg_len, 0) < 0 ||
        recv(fd, &answer, sizeof answer, 0) < 0)
        die("netlink", interface);
    close(fd);
    errno = -answer.error.error;
    if (answer.head.nlmsg_type == NLMSG_ERROR && errno != 0 && errno != ENOENT)
        die("take its address from the bridge", interface);
}

static void write_setting(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        die("set", path);
    close(fd);
}

static void make_bridge(int fd, const char *interface) {
    if (if_nametoindex(BRIDGE) != 0)
        return;
    struct ifreq mac = ask(fd, SIOCGIFHWADDR, interface, "address of");
    struct ifreq own = named(BRIDGE), mtu = ask(fd, SIOCGIFMTU, interface, "mtu of");
    if (ioctl(fd, SIOCBRADDBR, BRIDGE) != 0)
        die("make a bridge", interface);
    own.ifr_hwaddr = mac.ifr_hwaddr;
    own.ifr_hwaddr.sa_data[0] =
        (char)((own.ifr_hwaddr.sa_data[0] | 2) ^ 0x40); /* locally administered, and another */
    if (ioctl(fd, SIOCSIFHWADDR, &own) != 0)
        die("set the address of the bridge", interface);
    /* The address stays on the interface, where later calls find it, but the kernel does not answer ARP for
     * it. */
    write_setting("/proc/sys/net/ipv4/conf/" BRIDGE "/arp_ignore", "8");
    if (access("/proc/sys/net/ipv6/conf/" BRIDGE "/disable_ipv6", W_OK) == 0)
        write_setting("/proc/sys/net/ipv6/conf/" BRIDGE "/disable_ipv6", "1");
    add_port(fd, interface);
    strcpy(mtu.ifr_name, BRIDGE);
    if (ioctl(fd, SIOCSIFMTU, &mtu) != 0)
        die("mtu of the bridge", interface);
    release_address(interface, (const unsigned char *)mac.ifr_hwaddr.sa_data);
    bring_up(fd, BRIDGE);
}

static void print_address(const char *key, const struct sockaddr *what) {
    char text[INET_ADDRSTRLEN];
    struct sockaddr_in address;
    memcpy(&address, what, sizeof address);
    printf("\"%s\": \"%s\", ", key, inet_ntop(AF_INET, &address.sin_addr, text, sizeof text));
}

/* Print the routes through gateways of an interface, from /proc/net/route. */
static void print_routes(const char *interface) {
    char line[512], name[IFNAMSIZ], destination[INET_ADDRSTRLEN], gateway[INET_ADDRSTRLEN];
    unsigned int to, via, mask, flags;
    FILE *table = fopen("/proc/thread-self/net/route", "re");
    const char *between = "";
    if (table == NULL)
        die("open", "/proc/thread-self/net/route");
    printf("\"routes\": [");
    while (fgets(line, sizeof line, table) != NULL) {
        if (sscanf(line, "%15s %x %x %x %*d %*d %*d %x", name, &to, &via, &flags, &mask) != 5 || via == 0 ||
            strcmp(name, interface) != 0)
            continue;
        printf("%s\"%s/%d:%s\"", between, inet_ntop(AF_INET, &to, destination, sizeof destination),
               __builtin_popcount(mask), inet_ntop(AF_INET, &via, gateway, sizeof gateway));
        between = ", ";
    }
    fclose(table);
    printf("]}\n");
}

static void tell(int fd, const char *interface) {
    struct ifreq found = ask(fd, SIOCGIFHWADDR, interface, "address of");
    const unsigned char *m = (const unsigned char *)found.ifr_hwaddr.sa_data;
    printf("{\"mac\": \"%02x:%02x:%02x:%02x:%02x:%02x\", ", m[0], m[1], m[2], m[3], m[4], m[5]);
    printf("\"mtu\": %d, ", ask(fd, SIOCGIFMTU, interface, "mtu of").ifr_mtu);
    found = ask(fd, SIOCGIFADDR, interface, "IPv4 address of");
    print_address("address", &found.ifr_addr);
    found = ask(fd, SIOCGIFNETMASK, interface, "prefix of");
    print_address("mask", &found.ifr_netmask);
    print_routes(interface);
}

static int open_tap(int fd, const char *interface) {
    struct ifreq request = named("nmtap%d");
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) != 0)
        die("open a tap", "/dev/net/tun");
    struct ifreq mtu = ask(fd, SIOCGIFMTU, interface, "mtu of");
    memcpy(mtu.ifr_name, request.ifr_name, sizeof mtu.ifr_name);
    if (ioctl(fd, SIOCSIFMTU, &mtu) != 0)
        die("mtu of the tap", request.ifr_name);
    add_port(fd, request.ifr_name);
    bring_up(fd, request.ifr_name);
    return tap;
}

static void hand_over(int tap, bool vhost) {
    if (dup2(tap, TAP_FD) != TAP_FD)
        die("dup2", "tap");
    int host = vhost ? open("/dev/vhost-net", O_RDWR) : -1;
    if (vhost && (host < 0 || dup2(host, VHOST_FD) != VHOST_FD))
        die("open", "/dev/vhost-net");
}

/* Reserve the seat, since two guests in one seat would both answer for its address. The first one holds an
 * abstract socket name in this network namespace for as long as it lives. */
static void take_seat(const char *interface) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "nearmetal-guest-%s", interface);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1));
    if (fd < 0)
        die("socket", "seat");
    if (bind(fd, (struct sockaddr *)&name, size) == 0)
        return;
    if (errno == EADDRINUSE)
        refuse("another guest has this address already", interface);
    die("bind", interface);
}

int tap_main(int argc, char **argv) {
    static const struct option options[] = {{"netns", required_argument, NULL, 'n'},
                                            {"interface", required_argument, NULL, 'i'},
                                            {"vhost", no_argument, NULL, 'v'},
                                            {"macvtap", no_argument, NULL, 'm'},
                                            {NULL, 0, NULL, 0}};
    const char *netns = NULL, *interface = NULL;
    bool vhost = false, macvtap = false;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        if (option == 'n')
            netns = optarg;
        else if (option == 'i')
            interface = optarg;
        else if (option == 'v')
            vhost = true;
        else if (option == 'm')
            macvtap = true;
        else
            refuse("unknown option", "tap");
    }
    if (netns == NULL || interface == NULL)
        refuse("tap needs --netns and --interface", "tap");
    join_namespace(open_namespace(netns), CLONE_NEWNET, netns);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket", "tap");
    if (!macvtap)
        make_bridge(fd, interface);
    if (optind >= argc) {
        tell(fd, interface);
        return 0;
    }
    take_seat(interface);
    hand_over(macvtap ? open_macvtap(interface) : open_tap(fd, interface), vhost);
    execute(argv + optind);
}
