/* First process of every instance, native ones included: tells the time of its first instruction on a
 * descriptor, or into a FIFO where a container program passes no descriptors on, then starts the commands
 * that nm-box asks for (start.c) and reaps orphans until SIGTERM, or until nobody holds the other end of the
 * FIFO any more: our parent may be a daemon that outlives the tool. It leads a session, and its streams are
 * opened in its own mounts, so that nothing of the instance belongs to anything outside. As a command in a
 * standing instance (--once-fifo) it ends at once. Uses system calls alone, so that no library's start-up is
 * measured. */
#define _GNU_SOURCE
#include "direct.h"
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
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

/* Where to report: of "--first-fd N", "--first-fifo PATH" or "--once-fifo PATH"; -1 for anything else. */
static int descriptor(const char *option, const char *value) {
    if (same(option, "--first-fifo") ||
        same(option, "--once-fifo")) /* its reader is there before we are: this does not wait */
        return (int)direct(SYS_openat, AT_FDCWD, (long)value, O_WRONLY | O_CLOEXEC, 0);
    if (!same(option, "--first-fd"))
        return -1;
    int fd = 0;
    do {
        if (*value < '0' || *value > '9' || fd > 99)
            return -1;
        fd = 10 * fd + (*value - '0');
    } while (*++value != '\0');
    return fd;
}

/* The streams that we were born with are outside; an image may have no null device. */
static void own_streams(void) {
    int fd = (int)direct(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    for (int stream = 0; stream <= 2; stream++)
        if (stream != fd)
            direct(SYS_dup3, fd, stream, 0, 0);
    if (fd > 2)
        direct(SYS_close, fd, 0, 0, 0);
}

/* What the tool was born with, such as a lock of its caller, belongs to nobody inside: a checkpoint would
 * hold it. */
static void close_others(int fd) {
    if (fd > 3)
        direct(SYS_close_range, 3, fd - 1, 0, 0);
    direct(SYS_close_range, fd > 2 ? fd + 1 : 3, (long)~0U, 0, 0); /* before Linux 5.9: they stay */
}

static int init(int argc, char **argv) {
    struct timespec now;
    if (direct(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0) != 0)
        return EXIT_INIT;
    bool once = argc == 3 && same(argv[1], "--once-fifo");
    bool stays = argc == 5 && same(argv[3], "--label") && !same(argv[1], "--once-fifo");
    int fd = once || stays ? descriptor(argv[1], argv[2]) : -1;
    if (fd < 0) {
        static const char usage[] =
            "usage: nm-init --first-fd N --label LABEL | --first-fifo PATH --label LABEL |"
            " --once-fifo PATH\n";
        direct(SYS_write, 2, (long)usage, sizeof usage - 1, 0); /* the status says it too */
        return EXIT_INIT;
    }
    uint64_t first = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (once)
        return report(fd, first) ? 0 : EXIT_INIT;
    /* All before the report: if the parent is gone already, the report fails and we end; and who has read it
     * may signal us or ask for a command at once. */
    uint64_t wanted = (uint64_t)1 << (SIGCHLD - 1) | (uint64_t)1 << (SIGTERM - 1); /* the kernel's sigset_t */
    bool fifo = same(argv[1], "--first-fifo");
    close_others(fd);
    direct(SYS_setsid, 0, 0, 0, 0); /* fails if a container program has done it */
    if (direct(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0) != 0 ||
        direct(SYS_rt_sigprocmask, SIG_BLOCK, (long)&wanted, 0, sizeof wanted) != 0)
        return EXIT_INIT;
    int signals = (int)direct(SYS_signalfd4, -1, (long)&wanted, sizeof wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    int listener = commands_listen(argv[4]);
    if (signals < 0 || listener < 0 || !report(fd, first) || (!fifo && direct(SYS_close, fd, 0, 0, 0) != 0))
        return EXIT_INIT;
    own_streams();
    const int descriptors[] = {signals, listener, fd};
    for (;;) {
        bool ready[3] = {false, false, false};
        if (!commands_wait(descriptors, fifo ? 3 : 2, ready))
            return EXIT_INIT;
        if (ready[2]) /* of an end that writes alone: the last reader has gone */
            return 0;
        struct signalfd_siginfo sign;
        while (ready[0] && direct(SYS_read, signals, (long)&sign, sizeof sign, 0) == (long)sizeof sign)
            if (sign.ssi_signo == SIGTERM)
                return 0;
        int status;
        for (long child; (child = direct(SYS_wait4, -1, (long)&status, WNOHANG, 0)) > 0;)
            commands_ended((int)child, status);
        if (ready[1])
            commands_start(listener);
    }
}

NM_ENTRY(init)
