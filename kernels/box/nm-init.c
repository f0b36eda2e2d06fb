/* First process of every instance, native ones included: tells the time of its first instruction on a
 * descriptor, then reaps orphans until SIGTERM. Static and without stdio, so that the C library's start-up is
 * not measured. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_INIT = 111 };

static void say(const char *text) {
    /* Nothing is left to be done where even this fails: the exit status tells. */
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(EXIT_INIT);
}

static void report(int fd, uint64_t nanoseconds) {
    char line[64];
    char *at = line + sizeof line;
    *--at = '\n';
    *--at = '}';
    do
        *--at = (char)('0' + nanoseconds % 10);
    while ((nanoseconds /= 10) != 0);
    static const char head[] = "{\"first\": ";
    at -= sizeof head - 1;
    memcpy(at, head, sizeof head - 1);
    size_t length = (size_t)(line + sizeof line - at);
    if (write(fd, at, length) != (ssize_t)length || close(fd) != 0)
        _exit(EXIT_INIT);
}

int main(int argc, char **argv) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return EXIT_INIT;
    char *end = NULL;
    long fd = argc == 3 && strcmp(argv[1], "--first-fd") == 0 ? strtol(argv[2], &end, 10) : -1;
    if (fd < 0 || fd > 1023 || *end != '\0') {
        say("usage: nm-init --first-fd N\n");
        return EXIT_INIT;
    }
    /* Before the report: if the parent is gone already, the report fails and we end; and who has read it may
     * signal us at once. */
    sigset_t wanted;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || sigemptyset(&wanted) != 0 ||
        sigaddset(&wanted, SIGCHLD) != 0 || sigaddset(&wanted, SIGTERM) != 0 ||
        sigprocmask(SIG_BLOCK, &wanted, NULL) != 0)
        return EXIT_INIT;
    report((int)fd, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    for (;;) {
        int sign = sigwaitinfo(&wanted, NULL);
        if (sign == SIGTERM)
            return 0;
        if (sign < 0 && errno != EINTR)
            return EXIT_INIT;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
}
