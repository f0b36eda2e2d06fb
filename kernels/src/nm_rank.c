/* nm-rank [--cpus 0,1] [--places DIR] -- PROGRAM ARG...: pins this MPI rank to its entry of the list, writes
   DIR/place.<rank>.json and becomes PROGRAM. Knows no MPI: the launcher's environment names the rank. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "place.h"

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
    for (int at = 0;; at++) {
        char *end;
        long cpu = number(entry, "--cpus", &end);
        if (*end && *end != ',')
            fail("--cpus: numbers divided by commas were expected, not '%s'", list);
        if (at == rank) {
            size_t size = CPU_ALLOC_SIZE(cpu + 1);
            cpu_set_t *set = CPU_ALLOC(cpu + 1);
            if (!set)
                fail("out of memory");
            CPU_ZERO_S(size, set);
            CPU_SET_S(cpu, size, set);
            if (sched_setaffinity(0, size, set))
                fail("rank %d cannot be pinned to CPU %ld: %s", rank, cpu, strerror(errno));
            CPU_FREE(set);
            return;
        }
        if (!*end)
            fail("--cpus %s names no CPU for rank %d", list, rank);
        entry = end + 1;
    }
}

/* Written aside and renamed, so that a reader never meets half a file. */
static void write_place(const char *directory, int rank) {
    char path[PATH_MAX], aside[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/place.%d.json", directory, rank);
    int other = snprintf(aside, sizeof aside, "%s/.place.%d.%ld", directory, rank, (long)getpid());
    if (length >= (int)sizeof path || other >= (int)sizeof aside)
        fail("--places: path too long");
    Text text = {0};
    place_json(&text, rank);
    text_add(&text, "\n");
    int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || !text_write(&text, file) || close(file) || rename(aside, path))
        fail("%s cannot be written: %s", path, strerror(errno));
    text_free(&text);
}

int main(int count, char **arguments) {
    int rank = rank_of_launcher();
    fail_as(rank, NULL);
    const char *cpus = NULL, *places = NULL;
    int at = 1;
    for (; at + 1 < count && strcmp(arguments[at], "--") != 0; at += 2) {
        if (strcmp(arguments[at], "--cpus") == 0)
            cpus = arguments[at + 1];
        else if (strcmp(arguments[at], "--places") == 0)
            places = arguments[at + 1];
        else
            break;
    }
    if (at + 1 >= count || strcmp(arguments[at], "--") != 0)
        fail("usage: nm-rank [--cpus 0,1] [--places DIR] -- PROGRAM ARG...");
    if (cpus)
        pin(cpus, rank);
    if (places)
        write_place(places, rank);
    execvp(arguments[at + 1], arguments + at + 1);
    fail("%s cannot be started: %s", arguments[at + 1], strerror(errno));
}
