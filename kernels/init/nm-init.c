/* First process of every instance, native ones included: tells the time of its first instruction on a
 * descriptor, or into a FIFO where a container program passes no descriptors on, then reaps orphans until
 * SIGTERM, or until nobody holds the other end of the FIFO any more: our parent may be a daemon that outlives
 * the tool. As a command in a standing instance (--once-fifo) it ends at once. Uses system calls alone, so
 * that no library's start-up is measured. */
#define _GNU_SOURCE
#include "direct.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { EXIT_INIT = 111 };

/* {"first": N} in one write. */
static bool report(int fd, uint64_t nanoseconds) {
    char line[64] = "{\"first\": ";
    char digits[24];
    size_t count = 0, length = sizeof "{\"first\": " - 1;
    do
        digits[count++] = (char)('0' + nanoseconds % 10);
    while ((nanoseconds /= 10) != 0);
    while (count > 0)
        line[length++] = digits[--count];
    line[length++] = '}';
    line[length++] = '\n';
    return direct(SYS_write, fd, (long)line, (long)length, 0) == (long)length;
}

static bool same(const char *text, const char *other) {
    while (*text != '\0' && *text == *other)
        text++, other++;
    return *text == *other;
}

/* SIGIO, which is blocked, when the FIFO has lost its last reader. */
static bool watch(int fd) {
    return direct(SYS_fcntl, fd, F_SETOWN, direct(SYS_getpid, 0, 0, 0, 0), 0) == 0 &&
           direct(SYS_fcntl, fd, F_SETFL, O_WRONLY | O_ASYNC, 0) == 0;
}

static bool abandoned(int fd) {
    struct pollfd asked = {.fd = fd};
    struct timespec now = {0, 0};
    return direct(SYS_ppoll, (long)&asked, 1, (long)&now, 0) == 1 && (asked.revents & POLLERR) != 0;
}

/* Where to report: of "--first-fd N", "--first-fifo PATH" or "--once-fifo PATH"; -1 for anything else. */
static int descriptor(int argc, char **argv) {
    if (argc != 3)
        return -1;
    if (same(argv[1], "--first-fifo") ||
        same(argv[1], "--once-fifo")) /* its reader is there before we are: this does not wait */
        return (int)direct(SYS_openat, AT_FDCWD, (long)argv[2], O_WRONLY | O_CLOEXEC, 0);
    if (!same(argv[1], "--first-fd"))
        return -1;
    int fd = 0;
    const char *at = argv[2];
    do {
        if (*at < '0' || *at > '9' || fd > 99)
            return -1;
        fd = 10 * fd + (*at - '0');
    } while (*++at != '\0');
    return fd;
}

static int init(int argc, char **argv) {
    struct timespec now;
    if (direct(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0) != 0)
        return EXIT_INIT;
    int fd = descriptor(argc, argv);
    if (fd < 0) {
        static const char usage[] = "usage: nm-init --first-fd N | --first-fifo PATH | --once-fifo PATH\n";
        direct(SYS_write, 2, (long)usage, sizeof usage - 1, 0); /* the status says it too */
        return EXIT_INIT;
    }
    uint64_t first = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (same(argv[1], "--once-fifo"))
        return report(fd, first) ? 0 : EXIT_INIT;
    /* Both before the report: if the parent is gone already, the report fails and we end; and who has read it
     * may signal us at once. */
    uint64_t wanted = (uint64_t)1 << (SIGCHLD - 1) | (uint64_t)1 << (SIGTERM - 1) |
                      (uint64_t)1 << (SIGIO - 1); /* the kernel's sigset_t */
    bool fifo = same(argv[1], "--first-fifo");
    if (direct(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0) != 0 ||
        direct(SYS_rt_sigprocmask, SIG_BLOCK, (long)&wanted, 0, sizeof wanted) != 0 || (fifo && !watch(fd)) ||
        !report(fd, first) || (!fifo && direct(SYS_close, fd, 0, 0, 0) != 0))
        return EXIT_INIT;
    for (;;) {
        long sign = direct(SYS_rt_sigtimedwait, (long)&wanted, 0, 0, sizeof wanted);
        if (sign == SIGTERM || (sign == SIGIO && fifo && abandoned(fd)))
            return 0;
        if (sign < 0 && sign != -EINTR)
            return EXIT_INIT;
        while (direct(SYS_wait4, -1, 0, WNOHANG, 0) > 0)
            continue;
    }
}

NM_ENTRY(init)
