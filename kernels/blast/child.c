/* Runs one search in a child process, and reads its output while it runs. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"

enum { CANNOT_START = 127, CHUNK = 1 << 16 };

static _Noreturn void become(const char *const *argv, int output, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent ended before prctl() */
        _exit(CANNOT_START);
    unsetenv("LD_PRELOAD"); /* the profiling library of MPI ranks is not needed here */
    signal(SIGPIPE, SIG_DFL);
    if (dup2(output, STDOUT_FILENO) >= 0)
        execvp(argv[0], (char *const *)argv);
    _exit(CANNOT_START); /* the parent reports it */
}

Child child_start(const char *const *argv) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        fail("no pipe: %s", strerror(errno));
    Child child = {.output = ends[0], .name = argv[0], .begin = now()};
    pid_t parent = getpid();
    child.pid = fork();
    if (child.pid < 0)
        fail("%s cannot be started: %s", argv[0], strerror(errno));
    if (child.pid == 0)
        become(argv, ends[1], parent);
    close(ends[1]);
    return child;
}

static void await_end(Child *child) {
    int status;
    close(child->output);
    while (waitpid(child->pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("%s cannot be waited for: %s", child->name, strerror(errno));
    if (WIFSIGNALED(status))
        fail("%s was ended by signal %d (%s)", child->name, WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == CANNOT_START)
        fail("%s is not there, or cannot be started", child->name);
    if (WEXITSTATUS(status))
        fail("%s ended with %d", child->name, WEXITSTATUS(status));
    child->pid = 0;
}

bool child_goes_on(Child *child, Text *printed, int milliseconds) {
    static char chunk[CHUNK];
    struct pollfd watched = {.fd = child->output, .events = POLLIN};
    if (poll(&watched, 1, milliseconds) <= 0)
        return true;
    ssize_t count = read(child->output, chunk, sizeof chunk);
    if (count < 0 && errno != EINTR)
        fail("the output of %s cannot be read: %s", child->name, strerror(errno));
    if (count > 0) {
        if (printed->used + (size_t)count > INT_MAX)
            fail("%s prints more than 2 GiB for one fragment; take more fragments or a lower evalue",
                 child->name);
        text_add(printed, "%.*s", (int)count, chunk);
    }
    if (count != 0)
        return true;
    await_end(child);
    return false;
}
