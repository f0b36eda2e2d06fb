/* The root of a guest: loads the modules of the initramfs, and mounts the image with a writable layer. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEVICE_SECONDS = 10 };

/* Load the modules in the order of /modules/list. A module that is loaded already, or has no device, is no
 * error. If a needed one is missing, the step that needs it fails. */
static void load_modules(void) {
    FILE *list = fopen("/modules/list", "re");
    char name[256], path[512];
    if (list == NULL)
        return; /* the kernel has no modules */
    while (fgets(name, sizeof name, list) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        snprintf(path, sizeof path, "/modules/%s", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST && errno != ENODEV))
            say("load module", name);
        if (fd >= 0)
            close(fd);
        unlink(path); /* the initramfs is in memory, and is never unmounted */
    }
    fclose(list);
    unlink("/modules/list");
}

/* Wait until the device exists. */
static void await(const char *device) {
    for (int tries = 0; access(device, F_OK) != 0; tries++) {
        if (tries == DEVICE_SECONDS * 500)
            give_up("no such device: has the kernel its driver?", device);
        usleep(2000);
    }
}

/* Replace "serial:NAME" by the path of the virtio disk with this serial number, since hypervisors number
 * disks in different orders. Another device is left as it is. Waits until the device exists. */
static void resolve(char *device, size_t room) {
    char name[64];
    if (strncmp(device, "serial:", 7) != 0) {
        await(device);
        return;
    }
    snprintf(name, sizeof name, "%s", device + 7);
    for (int tries = 0; tries < DEVICE_SECONDS * 500; tries++) {
        for (char letter = 'a'; letter <= 'h'; letter++) {
            char path[64], found[64] = "";
            snprintf(path, sizeof path, "/sys/block/vd%c/serial", letter);
            FILE *file = fopen(path, "re");
            if (file == NULL)
                continue;
            bool same = fgets(found, sizeof found, file) != NULL && strcmp(found, name) == 0;
            fclose(file);
            if (same) {
                snprintf(device, room, "/dev/vd%c", letter);
                await(device);
                return;
            }
        }
        usleep(2000);
    }
    give_up("no such disk: has the kernel its driver?", device);
}

static void make_directory(const char *path, mode_t mode) {
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        give_up("make directory", path);
}

static void make_parents(const char *path) {
    char part[1024];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        make_directory(part, 0755);
    }
    make_directory(part, 0755);
}

static void mount_image(const struct given *given) {
    char what[sizeof given->root];
    strcpy(what, given->root);
    char *type = strrchr(what, ':');
    if (type == NULL)
        give_up("nm.root is not DEVICE:FSTYPE", what);
    *type++ = '\0';
    make_directory("/lower", 0755);
    if (strcmp(type, "virtiofs") == 0) {
        if (mount(what, "/lower", type, MS_RDONLY, NULL) != 0)
            give_up("mount virtiofs: has the kernel its module?", what);
        return;
    }
    resolve(what, (size_t)(type - what)); /* never longer than before */
    /* A disk of the user's own may be of any of these. */
    static const char *const types[] = {"erofs", "ext4", "xfs", "btrfs", "squashfs"};
    bool any = strcmp(type, "auto") == 0;
    for (size_t i = 0; any && i < sizeof types / sizeof *types; i++)
        if (mount(what, "/lower", types[i], MS_RDONLY, NULL) == 0)
            return;
    if (any || mount(what, "/lower", type, MS_RDONLY, NULL) != 0)
        give_up("mount the image: has the kernel its file system?", given->root);
}

static void mount_upper(const struct given *given) {
    make_directory("/writable", 0755);
    if (given->upper[0] != '\0') {
        char device[sizeof given->upper];
        strcpy(device, given->upper);
        resolve(device, sizeof device);
        if (mount(device, "/writable", "ext4", MS_NOATIME, NULL) != 0)
            give_up("mount the writable disk", given->upper);
    } else if (mount("tmpfs", "/writable", "tmpfs", 0, "size=80%") != 0) {
        give_up("mount", "/writable");
    }
    make_directory("/writable/upper", 0755);
    make_directory("/writable/work", 0755);
}

static void mount_fresh(const char *type, const char *at, mode_t mode) {
    char options[32];
    make_directory(at, 0755);
    snprintf(options, sizeof options, "mode=%o", (unsigned)mode);
    if (mount(type, at, type, MS_NOSUID | MS_NODEV, options) != 0)
        give_up("mount", at);
}

void start_swap(const struct given *given) {
    char device[sizeof given->swap];
    if (given->swap[0] == '\0')
        return;
    strcpy(device, given->swap);
    resolve(device, sizeof device);
    if (swapon(device, 0) != 0)
        give_up("swapon", given->swap);
}

void make_root(const struct given *given, uint64_t *modules) {
    static const char *const kept[] = {"/dev", "/proc", "/sys"};
    load_modules();
    *modules = guest_now();
    begin_step("root");
    mount_image(given);
    mount_upper(given);
    make_directory("/new", 0755);
    if (mount("overlay", "/new", "overlay", 0,
              "lowerdir=/lower,upperdir=/writable/upper,workdir=/writable/work") != 0)
        give_up("mount overlay: has the kernel its module?", "/new");
    char path[1024];
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(path, sizeof path, "/new%s", kept[i]);
        make_directory(path, 0755);
        if (mount(kept[i], path, NULL, MS_MOVE, NULL) != 0)
            give_up("move", kept[i]);
    }
    mount_fresh("tmpfs", "/new/tmp", 01777);
    mount_fresh("tmpfs", "/new/run", 0755);
    mount_fresh("tmpfs", "/new/dev/shm", 01777);
    make_directory("/new/dev/pts", 0755);
    if (mount("devpts", "/new/dev/pts", "devpts", 0, "mode=620,ptmxmode=666") != 0)
        say("mount", "/dev/pts");
    if (given->tools[0] != '\0') {
        snprintf(path, sizeof path, "/new%s", given->tools);
        make_parents(path);
        if (mount("/tools", path, NULL, MS_BIND, NULL) != 0)
            give_up("the tools", given->tools);
    }
    if (chdir("/new") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 ||
        chdir("/") != 0)
        give_up("change root", "/new");
}
