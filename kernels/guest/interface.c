/* Finds and renames interfaces by their MAC, since the kernel's order of two interfaces is not fixed. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INTERFACE_SECONDS = 10 };

static bool has_mac(int fd, const char *interface, const char *mac) {
    struct ifreq request = {.ifr_flags = 0};
    char text[18];
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (ioctl(fd, SIOCGIFHWADDR, &request) != 0)
        return false;
    const unsigned char *b = (const unsigned char *)request.ifr_hwaddr.sa_data;
    snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5]);
    return strcasecmp(text, mac) == 0;
}

static bool find_mac(int fd, const char *mac, char found[IF_NAMESIZE]) {
    struct if_nameindex *all = if_nameindex();
    bool there = false;
    for (struct if_nameindex *at = all; at != NULL && at->if_index != 0 && !there; at++)
        if ((there = has_mac(fd, at->if_name, mac)))
            snprintf(found, IF_NAMESIZE, "%s", at->if_name);
    if (all != NULL)
        if_freenameindex(all);
    return there;
}

static void rename_interface(int fd, const char *from, const char *to) {
    struct ifreq request = {.ifr_flags = 0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", from);
    snprintf(request.ifr_newname, sizeof request.ifr_newname, "%s", to);
    if (ioctl(fd, SIOCSIFNAME, &request) != 0)
        give_up("rename interface", from);
}

void name_interface(const char *mac, const char *name) {
    char found[IF_NAMESIZE] = "";
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        give_up("socket", "interfaces");
    for (uint64_t begin = guest_now(); !find_mac(fd, mac, found);) {
        if (guest_now() - begin > INTERFACE_SECONDS * UINT64_C(1000000000))
            give_up("no interface of this MAC: has the kernel its driver?", mac);
        usleep(2000);
    }
    if (strcmp(found, name) != 0) {
        if (if_nametoindex(name) != 0)
            rename_interface(fd, name, "nm-other"); /* gets its own name when its turn comes */
        rename_interface(fd, found, name);
    }
    close(fd);
}
