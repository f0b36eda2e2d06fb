/* nm-rank [--cpus 0,1] [--places DIR] [--usage DIR] -- PROGRAM ARG...: pins this MPI rank to its entry of the
   list (0+1: two CPUs for one rank), writes DIR/place.<rank>.json and becomes PROGRAM; with --usage it stays,
   to write DIR/usage.<rank>.json of that one program, and ends as the program did. Knows no MPI: the
   launcher's environment names the rank. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "place.h"

enum { MOST_CPUS = 1 << 16 };

static long number(const char *text, const char *what, char **end) {
    errno = 0;
    long value = strtol(text, end, 10);
    if (*end == text || errno || value < 0 || value > INT_MAX)
        fail("%s: a number from 0 was expected, not '%s'", what, text);
    return value;
}

static int rank_of_launcher(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const char *value = getenv(names[n]);
        char *end;
        if (value) {
            long rank = number(value, names[n], &end);
            if (*end)
                fail("%s: a number from 0 was expected, not '%s'", names[n], value);
            return (int)rank;
        }
    }
    return 0;
}

static void pin(const char *list, int rank) {
    const char *entry = list;
    size_t size = CPU_ALLOC_SIZE(MOST_CPUS);
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    if (!set)
        fail("out of memory");
    for (int at = 0;; at++) {
        CPU_ZERO_S(size, set);
        char *end;
        for (;; entry = end + 1) {
            long cpu = number(entry, "--cpus", &end);
            if (cpu >= MOST_CPUS)
                fail("--cpus: there is no CPU %ld", cpu);
            CPU_SET_S(cpu, size, set);
            if (*end != '+')
                break;
        }
        if (*end && *end != ',')
            fail("--cpus: numbers divided by commas were expected, not '%s'", list);
        if (at == rank)
            break;
        if (!*end)
            fail("--cpus %s names no CPU for rank %d", list, rank);
        entry = end + 1;
    }
    if (sched_setaffinity(0, size, set))
        fail("rank %d cannot be pinned by %s: %s", rank, list, strerror(errno));
    CPU_FREE(set);
}

/* Written aside and renamed, so that a reader never meets half a file. */
static void write_report(const char *directory, const char *kind, int rank, Text *text) {
    char path[PATH_MAX], aside[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s.%d.json", directory, kind, rank);
    int other = snprintf(aside, sizeof aside, "%s/.%s.%d.%ld", directory, kind, rank, (long)getpid());
    if (length >= (int)sizeof path || other >= (int)sizeof aside)
        fail("%s: path too long", directory);
    text_add(text, "\n");
    int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || !text_write(text, file) || close(file) || rename(aside, path))
        fail("%s cannot be written: %s", path, strerror(errno));
    text_free(text);
}

static void write_place(const char *directory, int rank) {
    Text text = {0};
    place_json(&text, rank);
    write_report(directory, "place", rank, &text);
}

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

_Noreturn static void become(char *const *program) {
    execvp(program[0], program);
    fail("%s cannot be started: %s", program[0], strerror(errno));
}

/* wait4 of the one child: its own usage and that of descendants it waited for, not that of all our children.
 */
static int run_measured(char *const *program, const char *directory, int rank) {
    double begin = now();
    pid_t child = fork();
    if (child < 0)
        fail("no process for %s: %s", program[0], strerror(errno));
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL))
            fail("the program cannot be tied to its parent: %s", strerror(errno));
        become(program);
    }
    int status;
    struct rusage usage;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            fail("%s cannot be waited for: %s", program[0], strerror(errno));
    double wall = now() - begin;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    Text text = {0};
    text_add(&text, "{\"rank\":%d,\"status\":%d,\"wall\":", rank, code);
    json_number(&text, wall);
    text_add(&text, ",\"user\":");
    json_number(&text, seconds(usage.ru_utime));
    text_add(&text, ",\"system\":");
    json_number(&text, seconds(usage.ru_stime));
    text_add(&text, ",\"max_rss\":%ld,\"blocks_in\":%ld,\"blocks_out\":%ld}", usage.ru_maxrss * 1024,
             usage.ru_inblock, usage.ru_oublock);
    write_report(directory, "usage", rank, &text);
    return code;
}

int main(int count, char **arguments) {
    int rank = rank_of_launcher();
    fail_as(rank, NULL);
    const char *cpus = NULL, *places = NULL, *usage = NULL;
    int at = 1;
    for (; at + 1 < count && strcmp(arguments[at], "--") != 0; at += 2) {
        if (strcmp(arguments[at], "--cpus") == 0)
            cpus = arguments[at + 1];
        else if (strcmp(arguments[at], "--places") == 0)
            places = arguments[at + 1];
        else if (strcmp(arguments[at], "--usage") == 0)
            usage = arguments[at + 1];
        else
            break;
    }
    if (at + 1 >= count || strcmp(arguments[at], "--") != 0)
        fail("usage: nm-rank [--cpus 0,1] [--places DIR] [--usage DIR] -- PROGRAM ARG...");
    if (cpus)
        pin(cpus, rank);
    if (places)
        write_place(places, rank);
    if (usage)
        return run_measured(arguments + at + 1, usage, rank);
    become(arguments + at + 1);
}
