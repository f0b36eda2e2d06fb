/* Sets up the guest's interface as the kernel command line says. */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { INTERFACE_SECONDS = 10 };

static struct ifreq named(const char *interface) {
    struct ifreq request = {.ifr_flags = 0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    return request;
}

static void bring_up(int fd, const char *interface) {
    struct ifreq request = named(interface);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
        give_up("no such interface: has the kernel its driver?", interface);
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        give_up("bring up", interface);
}

static struct sockaddr ipv4(const char *text, const char *whole) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct sockaddr out;
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        give_up("not an IPv4 address", whole);
    memcpy(&out, &address, sizeof out);
    return out;
}

static struct sockaddr mask_of(int prefix) {
    struct sockaddr_in mask = {.sin_family = AF_INET};
    struct sockaddr out;
    mask.sin_addr.s_addr = prefix == 0 ? 0 : htonl(~0u << (32 - prefix));
    memcpy(&out, &mask, sizeof out);
    return out;
}

/* Add a route. text: DESTINATION/PREFIX:GATEWAY. A gateway outside the networks of the interface is assumed
 * to be on the link. */
static void add_route(int fd, char *interface, char *text) {
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    char *slash = strchr(text, '/'), *colon = strchr(text, ':');
    if (slash == NULL || colon == NULL)
        give_up("not a route DESTINATION/PREFIX:GATEWAY", text);
    *slash = *colon = '\0';
    route.rt_dst = ipv4(text, text);
    route.rt_genmask = mask_of(atoi(slash + 1));
    route.rt_gateway = ipv4(colon + 1, text);
    struct rtentry gateway = {.rt_flags = RTF_UP | RTF_HOST,
                              .rt_dst = route.rt_gateway,
                              .rt_genmask = mask_of(32),
                              .rt_dev = interface};
    bool done = ioctl(fd, SIOCADDRT, &route) == 0 || errno == EEXIST;
    if (!done && errno == ENETUNREACH && ioctl(fd, SIOCADDRT, &gateway) == 0)
        done = ioctl(fd, SIOCADDRT, &route) == 0;
    if (!done)
        give_up("set the route", text);
}

static void await_interface(const char *interface) {
    for (uint64_t begin = guest_now(); if_nametoindex(interface) == 0;) {
        if (guest_now() - begin > INTERFACE_SECONDS * UINT64_C(1000000000))
            give_up("no such interface: has the kernel its driver?", interface);
        usleep(2000);
    }
}

static void set_mac(const char *interface, const char *text) {
    struct ifreq request = named(interface);
    unsigned m[6];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sscanf(text, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6)
        give_up("not a MAC", text);
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    for (int i = 0; i < 6; i++)
        request.ifr_hwaddr.sa_data[i] = (char)m[i];
    if (fd < 0 || ioctl(fd, SIOCSIFHWADDR, &request) != 0)
        give_up("set the MAC", text);
    close(fd);
}

int become(const char *name, const char *nanoseconds, const char *mac, const char *net, const char *tune) {
    struct given given = {.name = ""};
    long long now = atoll(nanoseconds);
    const struct timespec real = {.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    if (sethostname(name, strlen(name)) != 0 || clock_settime(CLOCK_REALTIME, &real) != 0)
        return say("become", name), 1;
    if (strcmp(mac, "-") == 0)
        return 0;
    if (strlen(net) >= sizeof given.net || strlen(tune) >= sizeof given.tune)
        return say("too long", net), 1;
    strcpy(given.net, net);
    strcpy(given.tune, strcmp(tune, "-") == 0 ? "" : tune);
    char interface[IFNAMSIZ];
    snprintf(interface, sizeof interface, "%.*s", (int)strcspn(net, ","), net);
    set_mac(interface, mac);
    make_network(&given);
    return 0;
}

/* ADDRESS/PREFIX */
static void set_address(int fd, const char *interface, char *address, const char *whole) {
    char *slash = strchr(address, '/');
    if (slash == NULL)
        give_up("no prefix", whole);
    *slash = '\0';
    struct ifreq request = named(interface);
    request.ifr_addr = ipv4(address, whole);
    if (ioctl(fd, SIOCSIFADDR, &request) != 0)
        give_up("set the address", whole);
    request = named(interface);
    request.ifr_netmask = mask_of(atoi(slash + 1));
    if (ioctl(fd, SIOCSIFNETMASK, &request) != 0)
        give_up("set the prefix", whole);
    bring_up(fd, interface);
}

/* MAC,ADDRESS/PREFIX */
static void make_line(int fd, const struct given *given) {
    static const char name[] = "nm-line";
    char text[sizeof given->line];
    strcpy(text, given->line);
    char *address = text, *mac = strsep(&address, ",");
    if (address == NULL)
        give_up("not MAC,ADDRESS/PREFIX", given->line);
    name_interface(mac, name);
    set_address(fd, name, address, given->line);
}

void make_network(const struct given *given) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        give_up("socket", "network");
    bring_up(fd, "lo");
    if (given->line[0] != '\0')
        make_line(fd, given);
    char text[sizeof given->net];
    strcpy(text, given->net);
    char *rest = text, *interface = strsep(&rest, ","), *address = strsep(&rest, ",");
    char *mtu = strsep(&rest, ",");
    if (address == NULL) { /* no interface of its own */
        close(fd);
        return;
    }
    if (given->mac[0] != '\0')
        name_interface(given->mac, interface);
    await_interface(interface);
    struct ifreq request = named(interface);
    request.ifr_mtu = mtu != NULL ? atoi(mtu) : 0;
    if (request.ifr_mtu > 0 && ioctl(fd, SIOCSIFMTU, &request) != 0)
        give_up("set the mtu", given->net);
    set_address(fd, interface, address, given->net);
    for (char *route; (route = strsep(&rest, ",")) != NULL;)
        add_route(fd, interface, route);
    close(fd);
    tune(interface, given->tune);
}
