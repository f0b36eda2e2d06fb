/* nm-box agent [-x...] MAP [-x...] HOST COMMAND...: runs a command in the instance that the map names HOST.
 * mpirun calls it instead of ssh.
 *
 * A line of the map is HOST PID USER CPUS LABEL INIT [CGROUP]..., separated by single spaces; "-" stands for
 * none. USER is "user" if the instance is entered through its user namespace, CPUS a list such as 0,2, and
 * INIT the name of the socket by which the first process of the instance starts commands. If a container
 * program enters the instance, the line is HOST = WORD..., the words of the program's command line with "%20"
 * for a space and "%25" for a percent sign.
 *
 * nm-box by-rank MAP TASKS COMMAND...: does the same for a rank that mpirun has started on its own host. The
 * rank enters the instance of its line, with TASKS ranks in each instance. */
#define _GNU_SOURCE
#include "box.h"
#include "rank.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *next(char **rest, const char *map) {
    char *word = strsep(rest, " ");
    if (word == NULL || *word == '\0')
        refuse("not a line HOST PID USER CPUS LABEL INIT [CGROUP]...", map);
    return word;
}

static struct entry parse_line(char *rest, const char *map) {
    struct entry entry = {.directory = "/"};
    entry.pid = (pid_t)number(next(&rest, map), INT_MAX, map);
    const char *user = next(&rest, map), *cpus = next(&rest, map);
    if (strcmp(user, "user") != 0 && strcmp(user, "-") != 0)
        refuse("third word is neither user nor -", map);
    entry.user_namespace = strcmp(user, "user") == 0;
    entry.cpus = strcmp(cpus, "-") == 0 ? NULL : cpus;
    entry.label = next(&rest, map);
    const char *init = next(&rest, map);
    entry.init = strcmp(init, "-") == 0 ? NULL : init;
    while (rest != NULL)
        append(&entry.cgroups, next(&rest, map), map);
    return entry;
}

/* Return the rest of a line of the map after the host. host: name of the host, or NULL for the line with this
 * number, from 0. The line is never freed, since exec follows. */
static char *look_up(const char *map, const char *host, long number_of_line) {
    FILE *file = fopen(map, "re");
    if (file == NULL)
        die("open map", map);
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] != '\n')
            refuse("last line of the map is torn", map);
        line[length - 1] = '\0';
        char *rest = line;
        const char *name = next(&rest, map);
        if (host != NULL ? strcmp(name, host) == 0 : number_of_line-- == 0) {
            if (fclose(file) != 0)
                die("close", map);
            return rest;
        }
    }
    if (ferror(file))
        die("read map", map);
    refuse("host is not in the map", host != NULL ? host : "of this rank");
}

/* Replace "%20" by a space and "%25" by "%", in place. */
static char *decode(char *word, const char *map) {
    char *to = word;
    for (const char *from = word; *from != '\0'; from++) {
        if (*from == '%') {
            if (strncmp(from, "%20", 3) != 0 && strncmp(from, "%25", 3) != 0)
                refuse("neither %20 nor %25", map);
            *to++ = from[2] == '0' ? ' ' : '%';
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return word;
}

/* Execute the words of the line, followed by the command. */
static _Noreturn void enter_by_program(char *rest, char *const command[], const char *map) {
    struct list words = {.count = 0};
    while (rest != NULL)
        append(&words, decode(next(&rest, map), map), map);
    for (int i = 0; command[i] != NULL; i++)
        append(&words, command[i], map);
    append(&words, NULL, map);
    execute((char *const *)words.items);
}

static _Noreturn void enter_line(char *rest, char *const command[], const char *map) {
    if (rest != NULL && strncmp(rest, "= ", 2) == 0)
        enter_by_program(rest + 2, command, map);
    struct entry entry = parse_line(rest, map);
    enter(&entry, command);
}

static char *join_words(char **words, int count) {
    size_t size = 1;
    for (int i = 0; i < count; i++)
        size += strlen(words[i]) + 1;
    char *line = malloc(size);
    if (line == NULL)
        die("allocate", "command");
    char *at = line;
    for (int i = 0; i < count; i++) {
        if (i > 0)
            *at++ = ' ';
        at = stpcpy(at, words[i]);
    }
    *at = '\0';
    return line;
}

/* Return the index of the first argument from `at` on that is no option. Options are meant for ssh. */
static int skip_options(int at, int argc, char **argv) {
    while (at < argc && argv[at][0] == '-')
        at++;
    return at;
}

int agent_main(int argc, char **argv) {
    int map_at = skip_options(1, argc, argv), at = skip_options(map_at + 1, argc, argv);
    if (at + 1 >= argc)
        refuse("usage: nm-box agent [-x...] MAP [-x...] HOST COMMAND...", "agent");
    const char *map = argv[map_at];
    char *rest = look_up(map, argv[at], 0);
    /* The only use of a shell in nm-box. mpirun passes a command line that the remote shell of ssh would
     * parse ("PATH=... ; export PATH ; orted ..."). */
    char shell[] = "/bin/sh", option[] = "-c";
    char *const command[] = {shell, option, join_words(argv + at + 1, argc - at - 1), NULL};
    enter_line(rest, command, map);
}

int by_rank_main(int argc, char **argv) {
    if (argc < 4)
        refuse("usage: nm-box by-rank MAP TASKS COMMAND...", "by-rank");
    long tasks = number(argv[2], INT_MAX, "TASKS");
    if (tasks == 0)
        refuse("no rank stands where no task does", argv[2]);
    enter_line(look_up(argv[1], NULL, rank_of_launcher() / tasks), argv + 3, argv[1]);
}
