/* nm-box reap -- COMMAND: runs a daemon that waits until processes are gone which it has sent into the
 * background. They become our children, and we fetch them as soon as they end: the first process of a
 * container often does not, or late. Ends as the daemon does. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int reap_main(int argc, char **argv) {
    char **command = argv + 1 + (argc > 1 && strcmp(argv[1], "--") == 0);
    if (*command == NULL)
        refuse("reap needs a command", "reap");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        die("prctl", "PR_SET_CHILD_SUBREAPER");
    pid_t child = fork();
    if (child < 0)
        die("fork", *command);
    if (child == 0)
        execute(command);
    for (;;) {
        /* Looked at first: end_like() fetches the daemon itself. */
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0 && errno != EINTR)
            die("waitid", "children");
        if (ended.si_pid == child)
            end_like(child);
        if (ended.si_pid != 0 && waitpid(ended.si_pid, NULL, WNOHANG) < 0)
            die("waitpid", "child");
    }
}
