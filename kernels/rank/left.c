/* Processes that a program leaves when it ends. */
#include "left.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"

/* Seconds for which processes may still end by themselves, like the reader of a pipe; and maximum seconds to
   wait for the end of killed ones. */
static const double grace = 1, patience = 5;
enum { MOST_NAMES = 5 };

void left_adopt(void) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        fail("prctl: %s", strerror(errno));
}

void left_await(pid_t child) {
    siginfo_t ended;
    for (;;) {
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0) {
            if (ended.si_pid == child)
                return;
            waitpid(ended.si_pid, NULL, 0);
        } else if (errno != EINTR)
            fail("process %d cannot be waited for: %s", (int)child, strerror(errno));
    }
}

/* Reap the children that have ended. Return whether any still runs. */
static bool some_run(void) {
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0 || (pid < 0 && errno == EINTR))
        ;
    return pid == 0;
}

static bool run_beyond(double end) {
    static const struct timespec moment = {.tv_nsec = 2000000};
    while (some_run()) {
        if (now() > end)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

/* Kill every child. The names of the first ones are added to `names`, if it is not NULL. */
static void kill_children(Text *names) {
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    int told = 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        char path[300], line[512];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *stat = fopen(path, "re");
        size_t size = stat ? fread(line, 1, sizeof line - 1, stat) : 0;
        if (stat)
            fclose(stat);
        line[size] = 0;
        /* The line is PID (NAME) STATE PARENT ..., and the name may contain any character. */
        char *begin = strchr(line, '('), *end = strrchr(line, ')');
        int parent;
        if (!begin || !end || sscanf(end, ") %*c %d", &parent) != 1 || parent != getpid())
            continue;
        *end = 0;
        if (names && told++ < MOST_NAMES) {
            text_add(names, names->used ? "," : "");
            json_string(names, begin + 1);
        }
        kill(atoi(entry->d_name), SIGKILL);
    }
    closedir(proc);
}

void left_end(Text *names) {
    if (!run_beyond(now() + grace))
        return;
    double end = now() + patience;
    kill_children(names);
    /* Children of the killed processes are now children of this process. */
    while (run_beyond(now() + 0.01) && now() < end)
        kill_children(NULL);
}
