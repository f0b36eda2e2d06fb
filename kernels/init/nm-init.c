/* nm-init is the first process of every instance, including native ones. It reports the time of its first
 * instruction, by CLOCK_MONOTONIC in nanoseconds, on a descriptor; or in a FIFO, since some container
 * programs pass no descriptors on. Then it starts the commands that nm-box requests (start.c) and reaps
 * orphans.
 *
 * It ends on SIGTERM, when its parent ends, or when the FIFO has no reader any more: its parent may be a
 * daemon of the container program, which outlives nm-box. It leads a session, and opens its standard streams
 * in its own mount namespace, so that no process of the instance depends on anything outside. With
 * --lone-fifo it does not end with its parent: a container program that restores it may end at once.
 *
 * With --once-fifo it runs as a command in a running instance: it reports and ends at once. It uses no
 * library, so that no library's start-up is measured. */
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

/* Write {"first": N} in one write. */
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

/* Return the descriptor for the report, from "--first-fd N", "--first-fifo PATH", "--lone-fifo PATH" or
 * "--once-fifo PATH"; -1 on an error. */
static int descriptor(const char *option, const char *value) {
    if (same(option, "--first-fifo") || same(option, "--lone-fifo") ||
        same(option, "--once-fifo")) /* the FIFO has a reader already, so this does not block */
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

/* Replace the inherited standard streams, which lead outside, by /dev/null if the image has it. */
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

/* Close inherited descriptors except `fd` and the standard streams. They belong to processes outside, for
 * example a lock of nm-box's caller, and would become part of a checkpoint. */
static void close_others(int fd) {
    if (fd > 3)
        direct(SYS_close_range, 3, fd - 1, 0, 0);
    direct(SYS_close_range, fd > 2 ? fd + 1 : 3, (long)~0U, 0, 0); /* fails before Linux 5.9 */
}

static int init(int argc, char **argv) {
    struct timespec now;
    if (direct(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0) != 0)
        return EXIT_INIT;
    bool once = argc == 3 && same(argv[1], "--once-fifo");
    bool stays = argc == 5 && same(argv[3], "--socket") && !same(argv[1], "--once-fifo");
    int fd = once || stays ? descriptor(argv[1], argv[2]) : -1;
    if (fd < 0) {
        static const char usage[] =
            "usage: nm-init --first-fd N --socket NAME | --first-fifo PATH --socket NAME |"
            " --lone-fifo PATH --socket NAME | --once-fifo PATH\n";
        direct(SYS_write, 2, (long)usage, sizeof usage - 1, 0); /* an error here is ignored */
        return EXIT_INIT;
    }
    uint64_t first = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (once)
        return report(fd, first) ? 0 : EXIT_INIT;
    /* All this is done before the report. If the parent has ended already, the report fails and nm-init ends.
     * The reader of the report may send a signal or request a command at once. */
    uint64_t wanted = (uint64_t)1 << (SIGCHLD - 1) | (uint64_t)1 << (SIGTERM - 1); /* the kernel's sigset_t */
    bool lone = same(argv[1], "--lone-fifo");
    bool fifo = lone || same(argv[1], "--first-fifo");
    close_others(fd);
    direct(SYS_setsid, 0, 0, 0, 0); /* fails if the container program has done this already */
    if ((!lone && direct(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0) != 0) ||
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
        if (ready[2]) /* a writer's end becomes ready when the last reader has closed the FIFO */
            return 0;
        struct signalfd_siginfo sign;
        while (ready[0] && direct(SYS_read, signals, (long)&sign, sizeof sign, 0) == (long)sizeof sign)
            if (sign.ssi_signo == SIGTERM)
                return 0;
        int status;
        for (long child; (child = direct(SYS_wait4, -1, (long)&status, WNOHANG, 0)) > 0;)
            commands_ended((int)child, status);
        commands_serve();
        if (ready[1])
            commands_accept(listener);
    }
}

NM_ENTRY(init)
