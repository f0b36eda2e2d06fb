/* Functions that all subcommands use: errors, numbers, waiting. */
#define _GNU_SOURCE
#include "box.h"
#include "fail.h"
#include "rank.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void die(const char *step, const char *detail) {
    fail_report("%s: %s (%s)", step, strerror(errno), detail);
    _exit(EXIT_BOX);
}

void refuse(const char *what, const char *detail) {
    fail_report("%s (%s)", what, detail);
    _exit(EXIT_BOX);
}

void append(struct list *list, const char *item, const char *option) {
    if (list->count == LIST_MAX)
        refuse("too many values", option);
    list->items[list->count++] = item;
}

uint64_t now_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        die("clock_gettime", "CLOCK_MONOTONIC");
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void report(int fd, const char *format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= sizeof line)
        refuse("report too long", format);
    if (write(fd, line, (size_t)length) != length)
        die("write", "report descriptor");
}

long number(const char *text, long limit, const char *option) {
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0 || value > limit)
        refuse("not a number in range", option);
    return value;
}

void die_with_parent(void) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        die("prctl", "PR_SET_PDEATHSIG");
}

/* Return whether the program is nm-rank, which is a part of nm-box. */
static bool names_rank(const char *program) {
    const char *last = strrchr(program, '/');
    return last != NULL && strcmp(last, "/nm-rank") == 0;
}

void execute(char *const argv[]) {
    if (names_rank(argv[0])) {
        int count = 0;
        while (argv[count] != NULL)
            count++;
        exit(rank_main(count, (char **)argv));
    }
    execvp(argv[0], argv);
    if (errno == ENOENT) {
        fail_report("exec: %s (%s)", strerror(errno), argv[0]);
        _exit(EXIT_NOT_FOUND);
    }
    die("exec", argv[0]);
}

void end_like(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid", "child");
    end_with(status);
}

void end_with(int status) {
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    /* End by the same signal, so that the parent sees the right status. The command has written the core
     * dump. */
    const struct rlimit no_core = {0, 0};
    int sign = WTERMSIG(status);
    if (setrlimit(RLIMIT_CORE, &no_core) != 0 || (sign != SIGKILL && signal(sign, SIG_DFL) == SIG_ERR) ||
        kill(getpid(), sign) != 0)
        die("kill", "own process");
    _exit(128 + sign);
}

void pin(const char *cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    const char *at = cpus;
    for (;;) {
        char *end = NULL;
        errno = 0;
        long cpu = strtol(at, &end, 10);
        if (errno != 0 || end == at || cpu < 0 || cpu >= CPU_SETSIZE || (*end != ',' && *end != '\0'))
            refuse("not a list of CPUs such as 0,2", cpus);
        CPU_SET((size_t)cpu, &set);
        if (*end == '\0')
            break;
        at = end + 1;
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity", cpus);
}
