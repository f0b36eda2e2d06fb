/* A file of lines that several processes change under a POSIX record lock. The file exists as long as it has
 * lines. All users may change it. */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 1 << 20 };

static int failed(const char *step, const char *path) {
    fail_report("%s: %s (%s)", step, strerror(errno), path);
    return 1;
}

static bool is_at(int fd, const char *path) {
    struct stat held, there;
    return fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/* Open and lock the file. It is created if it is missing and `make` is true. */
static int open_locked(const char *path, bool make) {
    for (;;) {
        /* First without O_CREAT: with it the kernel refuses another user's file in a directory like /tmp. */
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno == ENOENT && make) {
            fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
            if (fd < 0 && errno == EEXIST)
                continue;
            if (fd >= 0)
                (void)fchmod(fd, 0666); /* whatever the umask is */
        }
        if (fd < 0)
            return -1;
        if (lockf(fd, F_LOCK, 0) != 0) {
            close(fd);
            return -1;
        }
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
