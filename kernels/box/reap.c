/* nm-box reap -- COMMAND: runs a daemon, and reaps its orphaned descendants as soon as they end. The daemon
 * waits for the end of processes that it has put into the background. Without this they would be reaped by
 * the first process of the container, which often does it late or not at all. nm-box reap ends like the
 * daemon, and before that reaps the processes that end with it. If it is killed, the daemon is killed too. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LAST_MS = 200 };

/* Reap the remaining children. Those that were killed together with the child may need a moment to end. */
static _Noreturn void fetch_last(pid_t child) {
    const struct timespec pause = {.tv_nsec = 1000000};
    int status;
    if (waitpid(child, &status, 0) != child)
        die("waitpid", "child");
    for (int i = 0; i < LAST_MS; i++) {
        pid_t found = waitpid(-1, NULL, WNOHANG);
        if (found < 0)
            break;
        if (found == 0)
            nanosleep(&pause, NULL);
    }
    end_with(status);
}

int reap_main(int argc, char **argv) {
    char **command = argv + 1 + (argc > 1 && strcmp(argv[1], "--") == 0);
    if (*command == NULL)
        refuse("reap needs a command", "reap");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        die("prctl", "PR_SET_CHILD_SUBREAPER");
    pid_t child = fork();
    if (child < 0)
        die("fork", *command);
    if (child == 0) {
        die_with_parent(); /* else CRIU would finish a restore that was said to have failed */
        execute(command);
    }
    for (;;) {
        /* The child is not reaped here, since fetch_last() reaps the daemon. */
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0 && errno != EINTR)
            die("waitid", "children");
        if (ended.si_pid == child)
            fetch_last(child);
        if (ended.si_pid != 0 && waitpid(ended.si_pid, NULL, WNOHANG) < 0)
            die("waitpid", "child");
    }
}
