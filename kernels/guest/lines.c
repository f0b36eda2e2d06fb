/* What a run leaves for other runs to see while it lives: its line in a file, and a mark.
 *
 * A file of lines that several processes change under a POSIX record lock. The file exists as long as it has
 * lines. All users may change it,
 * so anything may lie in its place. */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST = 1 << 16, TRIES = 100 }; /* MOST: host/lock.py reads no more */

void bear_mark(const char *label) {
    char name[16]; /* the kernel's limit */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t room = sizeof address.sun_path - 1;
    const char *hyphen = strchr(label, '-');
    int first = hyphen == NULL ? 0 : (int)(hyphen - label);
    snprintf(name, sizeof name, "%.*s%s", first, label, hyphen == NULL ? label : hyphen + 1);
    prctl(PR_SET_NAME, name);
    int length = snprintf(address.sun_path + 1, room, "nearmetal-run/%s", label);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* open as long as the process lives */
    if (fd >= 0 && length < (int)room)
        (void)bind(fd, (const struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
}

static int failed(const char *step, const char *path) {
    fail_report("%s: %s (%s)", step, strerror(errno), path);
    return 1;
}

static bool is_at(int fd, const char *path) {
    struct stat held, there;
    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/* Wait for the record lock, but not for ever: any user may hold it. */
static void lock_records(int fd) {
    for (int tries = 0; tries < TRIES && lockf(fd, F_TLOCK, 0) != 0; tries++)
        usleep(10000);
}

/* Open and lock the file. It is created if it is missing and `make` is true. */
static int open_locked(const char *path, bool make) {
    for (;;) {
        /* First without O_CREAT: with it the kernel refuses another user's file in a directory like /tmp. */
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT && make) {
            fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
            if (fd < 0 && errno == EEXIST)
                continue;
            if (fd >= 0)
                (void)fchmod(fd, 0666); /* whatever the umask is */
        }
        if (fd < 0)
            return -1;
        struct stat found;
        if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink > 1) {
            close(fd);
            errno = EINVAL; /* another name of the file might be that of a file which matters */
            return -1;
        }
        lock_records(fd);
        if (is_at(fd, path))
            return fd; /* not a file that its last user has just removed */
        close(fd);
    }
}

/* Remove a line from the contents. Return the new length. */
static size_t drop(char *data, size_t size, const char *line) {
    size_t length = strlen(line), kept = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(data + at, '\n', size - at);
        size_t next = end == NULL ? size : (size_t)(end - data) + 1;
        if (next - at != length + 1 || memcmp(data + at, line, length) != 0) {
            memmove(data + kept, data + at, next - at);
            kept += next - at;
        }
        at = next;
    }
    return kept;
}

int change_line(const char *path, const char *line, bool add) {
    static char data[MOST];
    int fd = open_locked(path, add);
    if (fd < 0)
        return !add && errno == ENOENT ? 0 : failed("open", path);
    ssize_t size = pread(fd, data, sizeof data, 0);
    if (size < 0)
        return failed("read", path);
    if (add) {
        fwrite(data, 1, (size_t)size, stdout);
        if ((size_t)size + strlen(line) + 2 > sizeof data) { /* somebody has filled it */
            size = 0;
            if (ftruncate(fd, 0) != 0)
                return failed("write", path);
        }
        bool open_end = size > 0 && data[size - 1] != '\n';
        char *text = NULL;
        int length = asprintf(&text, "%s%s\n", open_end ? "\n" : "", line);
        if (length < 0 || pwrite(fd, text, (size_t)length, size) != length)
            return failed("write", path);
        free(text);
        return 0;
    }
    size_t kept = drop(data, (size_t)size, line);
    if (pwrite(fd, data, kept, 0) != (ssize_t)kept || ftruncate(fd, (off_t)kept) != 0)
        return failed("write", path);
    if (kept == 0)
        (void)unlink(path); /* another user's file in /tmp: left empty */
    return 0;
}
