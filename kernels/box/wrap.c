/* nm-box wrap: runs a container program of the machine (bwrap, lxc-start, ...) in the cgroups, the network
 * and the root directory of its instance, as far as the program cannot create them itself. They exist only as
 * long as the program's processes, so that nothing is left however these end. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

int umount2(const char *target, int flags);
enum { NM_DETACH = 2 };
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);

struct wrap {
    const char *user, *netns, *hostname, *cpus, *view;
    bool new_net, new_pids;
    struct root root;
    struct binds binds; /* of the view */
    struct list cgroups, read_only, fresh, places, detached;
};

static struct wrap parse(int argc, char **argv) {
    static const struct option options[] = {{"user-namespace", required_argument, NULL, 'u'},
                                            {"netns", required_argument, NULL, 'n'},
                                            {"new-net", no_argument, NULL, 'N'},
                                            {"hostname", required_argument, NULL, 'h'},
                                            {"cgroup", required_argument, NULL, 'c'},
                                            {"cpus", required_argument, NULL, 'p'},
                                            {"root-overlay", required_argument, NULL, 'r'},
                                            {"tree", required_argument, NULL, 't'},
                                            {"layer", required_argument, NULL, 'l'},
                                            {"read-only", required_argument, NULL, 'o'},
                                            {"new-pids", no_argument, NULL, 'I'},
                                            {"detach", required_argument, NULL, 'd'},
                                            {"fresh", required_argument, NULL, 'f'},
                                            {"place", required_argument, NULL, 'P'},
                                            {"rootless", no_argument, NULL, 'R'},
                                            {"view", required_argument, NULL, 'v'},
                                            {"bind", required_argument, NULL, 'b'},
                                            {"at", required_argument, NULL, 'a'},
                                            {NULL, 0, NULL, 0}};
    struct wrap wrap = {.root = {.tree = "/"}};
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'u':
            wrap.user = optarg;
            break;
        case 'n':
            wrap.netns = optarg;
            break;
        case 'N':
            wrap.new_net = true;
            break;
        case 'h':
            wrap.hostname = optarg;
            break;
        case 'c':
            append(&wrap.cgroups, optarg, "--cgroup");
            break;
        case 'p':
            wrap.cpus = optarg;
            break;
        case 'r':
            wrap.root.scratch = optarg;
            break;
        case 't':
            wrap.root.tree = optarg;
            break;
        case 'l':
            wrap.root.layer = optarg;
            break;
        case 'I':
            wrap.new_pids = true;
            break;
        case 'f':
            append(&wrap.fresh, optarg, "--fresh");
            break;
        case 'P':
            append(&wrap.places, optarg, "--place");
            break;
        case 'R':
            wrap.root.rootless = true;
            break;
        case 'v':
            wrap.view = optarg;
            break;
        case 'b':
            add_bind(&wrap.binds, optarg, false, "--bind");
            break;
        case 'a':
            place_bind(&wrap.binds, optarg);
            break;
        case 'd':
            append(&wrap.detached, optarg, "--detach");
            break;
        case 'o':
            append(&wrap.read_only, optarg, "--read-only");
            break;
        default:
            refuse("unknown option", "wrap");
        }
    }
    if (optind >= argc)
        refuse("wrap needs -- argv", "wrap");
    if (wrap.netns != NULL && wrap.new_net)
        refuse("--netns and --new-net exclude each other", wrap.netns);
    wrap.root.rootless |= wrap.user != NULL;
    wrap.root.own_network = wrap.new_net || wrap.netns != NULL;
    return wrap;
}

/* Mount a /sys that container programs can bind into their containers. It shows the devices of the instance's
 * network, and the cgroups and security modules of the machine. Without the latter, a restoring CRIU inside
 * might miss the module that the dumping CRIU outside has recorded. */
static void fresh_sys(void) {
    static const struct {
        const char *path;
        unsigned long type; /* of its file system; 0: any */
    } kept[] = {{"/sys/fs/cgroup", 0}, {"/sys/kernel/security", 0x73636673}, {"/sys/fs/selinux", 0xf97cff8c}};
    enum { KEPT = sizeof kept / sizeof kept[0] };
    int trees[KEPT];
    for (int i = 0; i < KEPT; i++) {
        struct statfs found;
        trees[i] = -1;
        if (kept[i].type != 0 &&
            (statfs(kept[i].path, &found) != 0 || (unsigned long)found.f_type != kept[i].type))
            continue;
        trees[i] = (int)syscall(SYS_open_tree, AT_FDCWD, kept[i].path,
                                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_RECURSIVE);
        if (trees[i] < 0 && errno != ENOENT)
            die("open_tree", kept[i].path);
    }
    if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        die("mount", "/sys");
    for (int i = 0; i < KEPT; i++)
        if (trees[i] >= 0 &&
            (syscall(SYS_move_mount, trees[i], "", AT_FDCWD, kept[i].path, MOVE_MOUNT_F_EMPTY_PATH) != 0 ||
             close(trees[i]) != 0))
            die("bind", kept[i].path);
}

static void attach_read_only(int tree, const char *path) {
    const struct mount_attr change = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID};
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &change, sizeof change) != 0)
        die("mount_setattr", path);
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) != 0 || close(tree) != 0)
        die("bind", path);
}

/* Mount a copy of the machine's root directory with all that is mounted below it, and with the binds, for a
 * program that serves files to a guest. Nothing can be written through the copy, and its device nodes have no
 * effect. */
static void mount_view(const char *view, const struct binds *binds) {
    int trees[LIST_MAX];
    copy_trees(binds, trees);
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/",
                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_RECURSIVE);
    if (tree < 0)
        die("open_tree", "/");
    attach_read_only(tree, view);
    for (int i = 0; i < binds->targets.count; i++) {
        char inside[PATH_MAX];
        if ((size_t)snprintf(inside, sizeof inside, "%s%s", view, binds->targets.items[i]) >= sizeof inside)
            refuse("path too long", binds->targets.items[i]);
        attach_read_only(trees[i], inside);
    }
}

/* Mount a tmpfs with the same mode on a directory of the instance. */
static void fresh_inside(const char *path) {
    char inside[PATH_MAX], options[32];
    struct stat tree;
    if ((size_t)snprintf(inside, sizeof inside, "root%s", path) >= sizeof inside)
        refuse("path too long", path);
    if (stat(inside, &tree) != 0 ||
        snprintf(options, sizeof options, "mode=%o", (unsigned)tree.st_mode & 07777u) < 0 ||
        mount("tmpfs", inside, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0)
        die("mount", inside);
}

static void separate(const struct wrap *wrap) {
    int user = open_namespace(wrap->user), net = open_namespace(wrap->netns);
    join_namespace(user, CLONE_NEWUSER, wrap->user);
    join_namespace(net, CLONE_NEWNET, wrap->netns);
    int kinds =
        CLONE_NEWNS | (wrap->hostname != NULL ? CLONE_NEWUTS : 0) | (wrap->new_net ? CLONE_NEWNET : 0);
    if (unshare(kinds) != 0)
        die("unshare", "mount, uts, net namespaces");
    if (wrap->new_net)
        loopback_up();
    if (wrap->hostname != NULL && sethostname(wrap->hostname, strlen(wrap->hostname)) != 0)
        die("sethostname", wrap->hostname);
}

/* Continue in the second process of a new PID namespace. The first process of the namespace ends with this
 * one, and with it all others. This is for programs that change their credentials, which clears the setting
 * of die_with_parent(). */
static void hold_processes(int *unified) {
    if (unshare(CLONE_NEWPID) != 0)
        die("unshare", "pid namespace");
    pid_t first = fork_into(*unified);
    if (first < 0)
        die("fork", "first process");
    if (first > 0)
        end_like(first);
    die_with_parent();
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        die("mount", "/proc");
    pid_t second = fork();
    if (second < 0)
        die("fork", "second process");
    if (second > 0)
        end_like(second);
    *unified = -1; /* born there */
}

static void lay_out(const struct wrap *wrap) {
    lay_root(&wrap->root);
    /* For a program that can only bind: directories that are new in an instance, and those that are
     * read-only. */
    directory("shm", 01777);
    for (int i = 0; i < wrap->fresh.count; i++)
        fresh_inside(wrap->fresh.items[i]);
    static const char shm[] = "/dev/shm";
    for (int i = 0; i < wrap->places.count; i++) {
        const char *path = wrap->places.items[i];
        make_parents("root", path);
        if (strncmp(path, shm, sizeof shm - 1) == 0 && path[sizeof shm - 1] == '/')
            make_parents("shm", path + sizeof shm - 1); /* the program binds it over the machine's */
    }
    for (int i = 0; i < wrap->read_only.count; i++) {
        const char *path = wrap->read_only.items[i];
        if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) != 0)
            die("bind", path);
        make_read_only(path);
    }
    if (chdir("/") != 0)
        die("chdir", "/");
}

int wrap_main(int argc, char **argv) {
    struct wrap wrap = parse(argc, argv);
    die_with_parent();
    int unified = join_cgroups(&wrap.cgroups);
    if (wrap.cpus != NULL)
        pin(wrap.cpus);
    separate(&wrap);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        die("make mounts private", "/");
    for (int i = 0; i < wrap.detached.count; i++)
        if (umount2(wrap.detached.items[i], NM_DETACH) != 0 && errno != EINVAL) /* EINVAL: nothing there */
            die("detach", wrap.detached.items[i]);
    if (wrap.view != NULL)
        mount_view(wrap.view, &wrap.binds);
    if (wrap.root.scratch != NULL)
        lay_out(&wrap);
    if (wrap.root.own_network)
        fresh_sys();
    die_with_parent(); /* again, since joining a user namespace has cleared it */
    if (wrap.new_pids)
        hold_processes(&unified);
    if (unified < 0)
        execute(argv + optind);
    pid_t child = fork_into(unified);
    if (child < 0)
        die("fork", argv[optind]);
    if (child == 0) {
        die_with_parent();
        execute(argv + optind);
    }
    end_like(child);
}
