/* Opens the character device of a macvtap. Its device number is found only in the sysfs of its network
 * namespace, and the name in /dev (tap<index>) may belong to a macvtap of another namespace. So this mounts
 * that sysfs in a private mount namespace, and opens a device node that it creates itself. */
#define _GNU_SOURCE
#include "box.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static dev_t number_of(const char *interface) {
    char path[64];
    unsigned first, second;
    snprintf(path, sizeof path, "/sys/class/macvtap/tap%u/dev", if_nametoindex(interface));
    FILE *file = fopen(path, "re");
    if (file == NULL)
        die("find the device of the macvtap", interface);
    if (fscanf(file, "%u:%u", &first, &second) != 2)
        refuse("not the number of a device", path);
    fclose(file);
    return makedev(first, second);
}

int open_macvtap(const char *interface) {
    static const char node[] = "/tmp/nm-macvtap";
    int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    int directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mounts < 0 || directory < 0)
        die("open", "/proc/self/ns/mnt");
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        die("make a mount namespace", interface);
    if (mount("sysfs", "/sys", "sysfs", MS_RDONLY, NULL) != 0)
        die("mount", "/sys");
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOEXEC | MS_NOSUID, "size=4k") != 0)
        die("mount", "/tmp");
    if (mknod(node, S_IFCHR | 0600, number_of(interface)) != 0)
        die("mknod", node);
    int tap = open(node, O_RDWR | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) != 0)
        die("open the macvtap", interface);
    if (setns(mounts, CLONE_NEWNS) != 0 || fchdir(directory) != 0)
        die("go back to the mounts", interface);
    close(mounts);
    close(directory);
    return tap;
}
