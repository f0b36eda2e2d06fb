/* The root file system of an instance: an overlay over the machine's own /, so that both have the same
 * binaries, or over the tree of an image. /proc, /sys, /dev/shm, /tmp and /run are mounted new. Everything is
 * mounted in a private mount namespace below one tmpfs, and vanishes with the namespace. */
#define _GNU_SOURCE
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Before glibc 2.37, <sys/mount.h> conflicts with <linux/mount.h>, so the two functions are declared here. */
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);
int umount2(const char *target, int flags);
enum { NM_DETACH = 2 };

/* Directories that are mounted new: mounts of the machine below them are not carried over. */
static const char *const own[] = {"proc", "sys", "dev", "tmp", "run"};
/* Types of file systems without files of users, including tmpfs: not carried over. */
static const char *const unwanted[] = {
    "tmpfs",       "proc",      "sysfs",    "devtmpfs",  "devpts",     "cgroup",     "cgroup2",  "autofs",
    "mqueue",      "hugetlbfs", "debugfs",  "tracefs",   "pstore",     "bpf",        "configfs", "fusectl",
    "binfmt_misc", "nsfs",      "efivarfs", "selinuxfs", "securityfs", "rpc_pipefs", "overlay"};

struct path {
    char text[PATH_MAX];
};

static struct path join(const char *head, const char *tail) {
    struct path path;
    int length = snprintf(path.text, sizeof path.text, "%s%s", head, tail);
    if (length < 0 || (size_t)length >= sizeof path.text)
        refuse("path too long", tail);
    return path;
}

static void mount_at(const char *source, const char *target, const char *type, unsigned long flags,
                     const char *data) {
    if (mount(source, target, type, flags, data) != 0)
        die(type != NULL ? "mount" : "bind", target);
}

void directory(const char *path, mode_t mode) {
    /* chmod makes the mode independent of the caller's umask. */
    if ((mkdir(path, mode) != 0 && errno != EEXIST) || chmod(path, mode) != 0)
        die("mkdir", path);
}

void make_read_only(const char *path) {
    const struct mount_attr change = {.attr_set = MOUNT_ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &change, sizeof change) == 0)
        return;
    struct statvfs now;
    if (errno != ENOSYS || statvfs(path, &now) != 0)
        die("mount_setattr read-only", path);
    /* Before Linux 5.12. A remount must repeat the flags that the mount has. */
    unsigned long kept = now.f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME);
    mount_at(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL);
}

/* Return the path in /proc of a descriptor. */
static struct path descriptor_path(int fd) {
    struct path path;
    if (snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", fd) < 0)
        refuse("descriptor", "/proc/self/fd");
    return path;
}

/* Open a path inside the new root. Symbolic links in an image cannot lead out of it. Return -1 and set errno
 * on an error. */
static int open_inside(int root, const char *path) {
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Create the directory /a/b/c inside a directory, and return a descriptor of it. */
static int make_inside(const char *top, const char *path) {
    struct path part = join(path, "");
    int root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int at = root < 0 ? -1 : open_inside(root, "/");
    for (char *end = part.text; at >= 0 && *end != '\0';) {
        char *name = end + strspn(end, "/");
        end = name + strcspn(name, "/");
        char kept = *end;
        *end = '\0';
        if (*name != '\0') {
            /* A failure shows when the directory is opened. */
            (void)mkdirat(at, name, 0755);
            int next = open_inside(root, part.text);
            if (close(at) != 0)
                die("close", part.text);
            at = next;
        }
        *end = kept;
    }
    if (at < 0 || close(root) != 0)
        die("make a place to bind", path);
    return at;
}

void make_parents(const char *top, const char *path) {
    if (close(make_inside(top, path)) != 0)
        die("close", path);
}

void add_bind(struct binds *binds, const char *path, bool read_only, const char *option) {
    append(&binds->sources, path, option);
    append(&binds->targets, path, option);
    binds->read_only[binds->sources.count - 1] = read_only;
}

void place_bind(struct binds *binds, const char *target) {
    if (binds->targets.count == 0)
        refuse("--at follows a bind", target);
    binds->targets.items[binds->targets.count - 1] = target;
}

/* Copy the mount trees that will be bound, before anything is mounted. The scratch directory may be inside
 * one of them, and the new mounts must not become part of the copy. */
void copy_trees(const struct binds *binds, int *trees) {
    for (int i = 0; i < binds->sources.count; i++) {
        const char *path = binds->sources.items[i];
        if (path[0] != '/' || binds->targets.items[i][0] != '/')
            refuse("a bind must be an absolute path", path);
        trees[i] = (int)syscall(SYS_open_tree, AT_FDCWD, path,
                                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_RECURSIVE);
        if (trees[i] < 0)
            die("open_tree", path);
    }
}

static void attach_trees(const struct binds *binds, const int *trees) {
    for (int i = 0; i < binds->targets.count; i++) {
        const char *path = binds->targets.items[i];
        int place = make_inside("root", path);
        unsigned by_descriptor = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
        if (syscall(SYS_move_mount, trees[i], "", place, "", by_descriptor) != 0 || close(place) != 0)
            die("bind", path);
        /* The descriptor of a tree that has been attached refers to the mount itself. */
        if (binds->read_only[i])
            make_read_only(descriptor_path(trees[i]).text);
        if (close(trees[i]) != 0)
            die("close", path);
    }
}

void bind_here(const struct binds *binds) {
    if (binds->sources.count == 0)
        return;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        die("unshare", "mount namespace");
    for (int i = 0; i < binds->sources.count; i++)
        mount_at(binds->sources.items[i], binds->targets.items[i], NULL, MS_BIND | MS_REC, NULL);
}

static bool below_own(const char *path) {
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t length = strlen(own[i]);
        if (strncmp(path + 1, own[i], length) == 0 && (path[1 + length] == '/' || path[1 + length] == '\0'))
            return true;
    }
    return false;
}

static bool is_unwanted(const char *type) {
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        if (strcmp(type, unwanted[i]) == 0)
            return true;
    return false;
}

/* Undo the escapes of mountinfo in place: it writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        unsigned value;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1) {
            *to = (char)value;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

struct mounts {
    char **paths;
    size_t count;
};

/* Return the mount points of file systems with files below / (such as a separate /usr or /home), in the order
 * of mounting. */
static struct mounts further_mounts(void) {
    struct mounts found = {NULL, 0};
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        die("open", "/proc/self/mountinfo");
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        char point[PATH_MAX], type[64];
        const char *tail = strstr(line, " - ");
        if (tail == NULL || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
            sscanf(tail, " - %63s", type) != 1)
            refuse("cannot read a line of /proc/self/mountinfo", line);
        unescape(point);
        if (strcmp(point, "/") == 0 || below_own(point) || is_unwanted(type))
            continue;
        char **more = realloc(found.paths, (found.count + 1) * sizeof *more);
        char *copy = strdup(point);
        if (more == NULL || copy == NULL)
            die("allocate", "list of mounts");
        found.paths = more;
        found.paths[found.count++] = copy;
    }
    if (ferror(file) || fclose(file) != 0)
        die("read", "/proc/self/mountinfo");
    free(line);
    return found;
}

static void bind_further(const struct mounts *mounts) {
    for (size_t i = 0; i < mounts->count; i++) {
        struct path inside = join("root", mounts->paths[i]);
        if (mount(mounts->paths[i], inside.text, NULL, MS_BIND, NULL) == 0)
            make_read_only(inside.text);
        else if (errno != EACCES && errno != ENOENT) /* FUSE mount of another user; or unmounted meanwhile */
            die("bind", inside.text);
    }
}

/* Mount one overlay for the whole root. Paths are given by descriptors, since an overlay takes a colon or a
 * comma in a path for its end. layer: directory of the upper layer; -1 for the working directory. */
static void overlay_whole(int tree, int layer, bool rootless) {
    struct stat top;
    struct path upper = join("upper", ""), work = join("work", "");
    if (layer >= 0) {
        upper = join(descriptor_path(layer).text, "/upper");
        work = join(descriptor_path(layer).text, "/work");
    }
    struct path options = join("upperdir=", upper.text);
    options = join(join(options.text, ",workdir=").text, work.text);
    options = join(join(options.text, ",lowerdir=").text, descriptor_path(tree).text);
    if (fstat(tree, &top) != 0)
        die("stat", "the tree");
    directory(upper.text, top.st_mode & 07777);
    directory(work.text, 0700);
    directory("root", 0755);
    mount_at("overlay", "root", "overlay", 0,
             rootless ? join(options.text, ",userxattr").text : options.text);
}

static void overlay_directory(const char *name, mode_t mode) {
    struct path lower = join("/", name), upper = join("upper/", name), work = join("work/", name);
    struct path inside = join("root/", name);
    char options[3 * NAME_MAX + 128];
    directory(inside.text, 0755);
    directory(upper.text, mode); /* the merged directory has the mode of the upper one */
    directory(work.text, 0700);
    int length = snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", lower.text,
                          upper.text, work.text);
    bool plain = strpbrk(name, ",:\\") == NULL && length > 0 && (size_t)length < sizeof options;
    if (plain && mount("overlay", inside.text, "overlay", 0, options) == 0)
        return;
    /* The overlay is refused if something is mounted below the directory, since these mounts are locked. Then
     * the directory is bound read-only. */
    mount_at(lower.text, inside.text, NULL, MS_BIND | MS_REC, NULL);
    make_read_only(inside.text);
}

static void copy_link(int top, const char *name) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(top, name, target, sizeof target - 1);
    if (length < 0)
        die("readlink", name);
    target[length] = '\0';
    if (symlink(target, join("root/", name).text) != 0)
        die("symlink", name);
}

/* Mount one overlay for each top-level directory. In a user namespace lowerdir=/ is refused because of the
 * locked mounts below /. Symbolic links in / are copied; regular files in / are left out. */
static void overlay_each(void) {
    directory("upper", 0755);
    directory("work", 0755);
    directory("root", 0755);
    mount_at("root", "root", NULL, MS_BIND, NULL);
    DIR *top = opendir("/");
    if (top == NULL)
        die("opendir", "/");
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(top)) != NULL) {
        struct stat what;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(top), entry->d_name, &what, AT_SYMLINK_NOFOLLOW) != 0)
            die("stat", entry->d_name);
        if (S_ISLNK(what.st_mode))
            copy_link(dirfd(top), entry->d_name);
        else if (S_ISDIR(what.st_mode) && below_own(join("/", entry->d_name).text))
            directory(join("root/", entry->d_name).text, 0755);
        else if (S_ISDIR(what.st_mode))
            overlay_directory(entry->d_name, what.st_mode & 07777);
        errno = 0;
    }
    if (errno != 0 || closedir(top) != 0)
        die("readdir", "/");
}

/* Create the directories for the new mounts. In an image a symbolic link that leads out of it may be in their
 * place. */
static void make_own_directories(void) {
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct path inside = join("root/", own[i]);
        struct stat what;
        if (mkdir(inside.text, 0755) != 0 && errno != EEXIST)
            die("mkdir", inside.text);
        if (lstat(inside.text, &what) != 0 || !S_ISDIR(what.st_mode))
            refuse("not a directory in the image", own[i]);
    }
}

static void mount_sys(bool own_network) {
    /* A new sysfs shows the devices of the instance's network. hwloc reads the cgroups in it. */
    if (own_network && mount("sysfs", "root/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
        if (mount("/sys/fs/cgroup", "root/sys/fs/cgroup", NULL, MS_BIND | MS_REC, NULL) != 0 &&
            errno != ENOENT)
            die("bind", "/sys/fs/cgroup");
        return;
    }
    mount_at("/sys", "root/sys", NULL, MS_BIND | MS_REC, NULL);
}

void lay_root(const struct root *plan) {
    struct mounts further = {NULL, 0};
    bool of_machine = strcmp(plan->tree, "/") == 0;
    int tree = open(plan->tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (tree < 0)
        die("open", plan->tree);
    int layer = plan->layer != NULL ? open(plan->layer, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (plan->layer != NULL && layer < 0)
        die("open", plan->layer);
    if (of_machine && !plan->rootless)
        further = further_mounts();
    mount_at("tmpfs", plan->scratch, "tmpfs", 0, "mode=0755");
    if (chdir(plan->scratch) != 0)
        die("chdir", plan->scratch);
    if (of_machine && plan->rootless)
        overlay_each();
    else
        overlay_whole(tree, layer, plan->rootless);
    if (close(tree) != 0 || (layer >= 0 && close(layer) != 0))
        die("close", plan->tree);
    if (!of_machine)
        make_own_directories();
    bind_further(&further);
}

void build_root(const struct root *plan) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        die("make mounts private", "/");
    int trees[LIST_MAX];
    copy_trees(plan->binds, trees);
    lay_root(plan);
    if (plan->own_pids)
        mount_at("proc", "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    else
        mount_at("/proc", "root/proc", NULL, MS_BIND | MS_REC, NULL);
    mount_sys(plan->own_network);
    /* CRIU cannot handle mounts on top of each other, as they exist below the machine's /dev. */
    mount_at("/dev", "root/dev", NULL, plan->layer != NULL ? MS_BIND : MS_BIND | MS_REC, NULL);
    if (plan->layer != NULL)
        mount_at("/dev/pts", "root/dev/pts", NULL, MS_BIND, NULL);
    if (!plan->shared_shm)
        mount_at("tmpfs", "root/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mount_at("tmpfs", "root/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mount_at("tmpfs", "root/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
    attach_trees(plan->binds, trees);
    if (chdir("root") != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
        die("pivot_root", plan->scratch);
    if (umount2(".", NM_DETACH) != 0 || chdir("/") != 0)
        die("leave the old root", plan->scratch);
}
