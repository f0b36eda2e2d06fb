/* Commands that are built into the agent, since an image may lack them: copying files in and out as cpio
 * archives of the "newc" format, and connecting FIFOs with the standard streams. In an archive, the size of a
 * file has 32 bits. */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 110, PIECE = 1 << 16 };

static bool failed(const char *step, const char *what) {
    fail_report("%s: %s (%s)", step, strerror(errno), what);
    return false;
}

static bool read_all(int fd, char *data, size_t size) {
    while (size > 0) {
        ssize_t got = read(fd, data, size);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        data += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno != EINTR)
            return false;
        data += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* Return field number `at` of a cpio header. */
static unsigned long field(const char *header, int at) {
    char text[9] = "";
    memcpy(text, header + 6 + 8 * at, 8);
    return strtoul(text, NULL, 16);
}

static bool parents(char *path) {
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return failed("make directory", path);
    }
    return true;
}

static bool copy_in(const char *path, mode_t mode, size_t size) {
    static char piece[PIECE];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode & 07777);
    if (fd < 0)
        return failed("create", path);
    while (size > 0) {
        size_t part = size < sizeof piece ? size : sizeof piece;
        if (!read_all(0, piece, part) || !write_all(fd, piece, part)) {
            close(fd);
            return failed("write", path);
        }
        size -= part;
    }
    return (fchmod(fd, mode & 07777) == 0 && close(fd) == 0) || failed("close", path);
}

static bool put_one(char *path, mode_t mode, size_t size) {
    char target[PATH_MAX];
    if (!parents(path))
        return false;
    if (S_ISREG(mode))
        return copy_in(path, mode, size);
    if (S_ISDIR(mode))
        return mkdir(path, mode & 07777) == 0 || errno == EEXIST || failed("make directory", path);
    unlink(path);
    if (S_ISFIFO(mode))
        return mkfifo(path, mode & 07777) == 0 || failed("make FIFO", path);
    if (!S_ISLNK(mode) || size >= sizeof target || !read_all(0, target, size))
        return failed("neither file, directory, FIFO nor link", path);
    target[size] = '\0';
    return symlink(target, path) == 0 || failed("link", path);
}

static bool skip(size_t size) {
    char padding[4];
    return size % 4 == 0 || read_all(0, padding, 4 - size % 4);
}

/* put: unpack the archive on standard input. Paths are relative to /. */
static int put(void) {
    umask(0);
    for (;;) {
        char header[HEADER], path[PATH_MAX + 1];
        if (!read_all(0, header, sizeof header) || memcmp(header, "070701", 6) != 0)
            return failed("read", "not an archive of cpio's newc form"), 1;
        size_t name = field(header, 11), size = field(header, 6);
        path[0] = '/';
        if (name == 0 || name >= PATH_MAX || !read_all(0, path + 1, name) || !skip(HEADER + name))
            return failed("read", "name"), 1;
        path[name] = '\0';
        if (strcmp(path + 1, "TRAILER!!!") == 0)
            return 0;
        if (!put_one(path, (mode_t)field(header, 1), size) || !skip(size))
            return 1;
    }
}

static bool pad(size_t size) {
    return size % 4 == 0 || write_all(1, "\0\0\0", 4 - size % 4);
}

static bool write_header(const char *name, mode_t mode, size_t size) {
    char header[HEADER + 64];
    size_t length = strlen(name) + 1;
    snprintf(header, sizeof header, "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x", 0,
             (unsigned)mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0);
    return write_all(1, header, HEADER) && write_all(1, name, length) && pad(HEADER + length);
}

static bool get_file(const char *path, const struct stat *what) {
    static char piece[PIECE];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t left = (size_t)what->st_size;
    if (fd < 0 || !write_header(path + 1, what->st_mode, left))
        return failed("read", path);
    while (left > 0) {
        size_t part = left < sizeof piece ? left : sizeof piece;
        if (!read_all(fd, piece, part) || !write_all(1, piece, part))
            return failed("read", path);
        left -= part;
    }
    close(fd);
    return pad((size_t)what->st_size);
}

static bool fits(const char *path, const struct stat *what) {
    if (what->st_size <= UINT32_MAX)
        return true;
    fail_report("a file of 4 GiB or more cannot be copied out of the guest: write smaller files (%s)", path);
    return false;
}

/* Pack a file, or all regular files below a directory. check: only look whether all of them fit into an
 * archive. */
static bool get_one(const char *path, bool check) {
    struct stat what;
    if (lstat(path, &what) != 0)
        return errno == ENOENT || failed("read", path);
    if (S_ISREG(what.st_mode))
        return fits(path, &what) && (check || get_file(path, &what));
    if (!S_ISDIR(what.st_mode))
        return true;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return failed("read", path);
    bool good = check || write_header(path + 1, what.st_mode, 0);
    for (struct dirent *entry; good && (entry = readdir(directory)) != NULL;) {
        char below[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below)
            good = failed("read", path);
        else
            good = get_one(below, check);
    }
    closedir(directory);
    return good;
}

static int get(int count, char **paths) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            if (paths[i][0] != '/' || !get_one(paths[i], pass == 0))
                return 1;
    return write_header("TRAILER!!!", 0, 0) ? 0 : 1;
}

static int copy_between(int from, int to) {
    static char piece[PIECE];
    for (ssize_t got; (got = read(from, piece, sizeof piece)) != 0;)
        if (got < 0 ? errno != EINTR : !write_all(to, piece, (size_t)got))
            return 1;
    return 0;
}

/* fill: copy standard input into a FIFO, and close the FIFO at its end. */
static int fill(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? (failed("open", path), 1) : copy_between(0, fd);
}

/* drain: copy a FIFO to standard output, also if writers open and close it repeatedly. */
static int drain_fifo(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? (failed("open", path), 1) : copy_between(fd, 1);
}

int own_command(int argc, char **argv) {
    if (argc == 1 && strcmp(argv[0], "put") == 0)
        return put();
    if (argc > 1 && strcmp(argv[0], "get") == 0)
        return get(argc - 1, argv + 1);
    if (argc == 2 && strcmp(argv[0], "fill") == 0)
        return fill(argv[1]);
    if (argc == 2 && strcmp(argv[0], "drain") == 0)
        return drain_fifo(argv[1]);
    if (argc == 2 && strcmp(argv[0], "holdings") == 0)
        return print_holdings(argv[1]);
    if ((argc == 2 || argc == 3) && strcmp(argv[0], "network") == 0)
        return print_network(argv[1], argv[2]);
    if (argc == 6 && strcmp(argv[0], "become") == 0)
        return become(argv[1], argv[2], argv[3], argv[4], argv[5]);
    if (argc == 3 && (strcmp(argv[0], "add-line") == 0 || strcmp(argv[0], "drop-line") == 0))
        return change_line(argv[1], argv[2], strcmp(argv[0], "add-line") == 0);
    if (argc > 2 && strcmp(argv[0], "join") == 0)
        return make_namespaces(argv[1], argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[0], "part") == 0)
        return drop_namespaces(argc - 1, argv + 1);
    return -1;
}
