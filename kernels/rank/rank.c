/* nm-rank: pins a rank to its CPUs, runs its program, and reports where the rank ran and which resources its
   program used. */
#include "rank.h"

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

#include "caller.h"
#include "clock.h"
#include "counts.h"
#include "fail.h"
#include "hydra.h"
#include "left.h"
#include "place.h"

enum { MOST_CPUS = 1 << 16 };

static long number(const char *text, const char *what, char **end) {
    errno = 0;
    long value = strtol(text, end, 10);
    if (*end == text || errno || value < 0 || value > INT_MAX)
        fail("%s: a number from 0 was expected, not '%s'", what, text);
    return value;
}

static int rank_given(const char *text) {
    char *end;
    long rank = number(text, "--rank", &end);
    if (*end)
        fail("--rank: a number from 0 was expected, not '%s'", text);
    return (int)rank;
}

int rank_of_launcher(void) {
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

/* Report the arrival in DIR/arrived, and wait until no process has DIR/gate open for writing. All readers see
 * this end of file at the same moment, also if the writer dies. */
static void wait_at_gate(const char *directory) {
    char path[PATH_MAX], byte = '.';
    if (snprintf(path, sizeof path, "%s/arrived", directory) >= (int)sizeof path)
        fail("%s: path too long", directory);
    int arrived = open(path, O_WRONLY | O_CLOEXEC);
    if (arrived < 0)
        fail("%s: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/gate", directory);
    int gate = open(path, O_RDONLY | O_CLOEXEC);
    if (gate < 0 || write(arrived, &byte, 1) != 1)
        fail("%s: %s", path, strerror(errno));
    ssize_t got;
    while ((got = read(gate, &byte, 1)) != 0)
        if (got < 0 && errno != EINTR)
            fail("%s: %s", path, strerror(errno));
    close(gate);
    close(arrived);
}

/* Return a copy of this rank's entry in a comma-separated list. */
static char *entry_of(const char *list, int rank) {
    const char *entry = list;
    for (int at = 0; at < rank; at++) {
        const char *comma = strchr(entry, ',');
        if (!comma)
            fail("--storage %s names none for rank %d", list, rank);
        entry = comma + 1;
    }
    char *copy = strndup(entry, strcspn(entry, ","));
    if (!copy)
        fail("out of memory");
    return copy;
}

/* Return a copy of an argument in which every `mark` is replaced by `value`. */
static char *with_value(const char *argument, const char *mark, const char *value) {
    Text text = {0};
    const char *at = argument, *next;
    for (; (next = strstr(at, mark)) != NULL; at = next + strlen(mark))
        text_add(&text, "%.*s%s", (int)(next - at), at, value);
    text_add(&text, "%s", at);
    return text.data; /* never freed: the program needs it */
}

static void fill_in(char **program, const char *mark, const char *value) {
    for (char **word = program; *word; word++)
        if (strstr(*word, mark))
            *word = with_value(*word, mark, value);
}

/* Replace {uid:gid} by the IDs that the program runs as. They are known only here, since they differ inside a
   user namespace. */
static void fill_in_ids(char **program) {
    char ids[32];
    snprintf(ids, sizeof ids, "%u:%u", (unsigned)geteuid(), (unsigned)getegid());
    fill_in(program, "{uid:gid}", ids);
}

/* Write the report. It need not be atomic, since it is read only after this process has ended. */
static void write_report(const char *directory, int rank, Text *text) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/rank.%d.json", directory, rank) >= (int)sizeof path)
        fail("%s: path too long", directory);
    text_add(text, "\n");
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || !text_write(text, file) || close(file))
        fail("%s cannot be written: %s", path, strerror(errno));
    text_free(text);
}

static void set_variable(const char *name, const char *value) {
    if (setenv(name, value, 1))
        fail("%s cannot be set: %s", name, strerror(errno));
}

/* text: NAME=VALUE; it stays in use. */
static void take_variable(char *text) {
    if (!strchr(text, '=') || putenv(text))
        fail("--variable: NAME=VALUE was expected, not '%s'", text);
}

/* Preload the profiling library into the program, before all other preloaded libraries. NEARMETAL_STARTED is
   the start by the clock that the library reads too, so that it can tell how long the program took to load
   it. */
static void preload(const char *library, const char *directory) {
    char libraries[2 * PATH_MAX], moment[32];
    const char *others = getenv("LD_PRELOAD");
    if (access(library, R_OK))
        fail("--preload: %s cannot be read: %s", library, strerror(errno));
    if (snprintf(libraries, sizeof libraries, "%s%s%s", library, others ? ":" : "", others ? others : "") >=
        (int)sizeof libraries)
        fail("LD_PRELOAD is too long");
    snprintf(moment, sizeof moment, "%.0f", 1e9 * now());
    set_variable("LD_PRELOAD", libraries);
    set_variable("NEARMETAL_PROFILE", directory);
    set_variable("NEARMETAL_STARTED", moment);
}

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Start the program as a child. vfork saves the copy of this process. If the program cannot be executed, the
   child leaves the reason in the memory that both share until then. */
static pid_t start(char *const *program) {
    volatile int reason = 0;
    pid_t child = vfork();
    if (child == 0) {
        caller_set_signals();
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
            execvp(program[0], program);
        reason = errno;
        _exit(127);
    }
    if (child < 0 || reason)
        fail("%s cannot be started: %s", program[0], strerror(child < 0 ? errno : reason));
    return child;
}

/* Add the bytes that a process and its reaped descendants have read and written, by system calls and, of
   these, from and to disks. Adds nothing if the kernel does not report them. */
static void add_io(Text *text, pid_t child) {
    static const char *const lines[] = {"rchar", "wchar", "read_bytes", "write_bytes"};
    char path[64], content[512];
    snprintf(path, sizeof path, "/proc/%d/io", (int)child);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, content, sizeof content - 1);
    if (file >= 0)
        close(file);
    content[size > 0 ? size : 0] = 0;
    const char *comma = "";
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        char head[32];
        unsigned long long bytes;
        snprintf(head, sizeof head, "%s%s: ", l ? "\n" : "", lines[l]);
        const char *at = strstr(content, head);
        if (at && sscanf(at + strlen(head), "%llu", &bytes) == 1) {
            text_add(text, "%s\"%s\":%llu", comma, lines[l], bytes);
            comma = ",";
        }
    }
}

/* Reap a child that has ended. usage: of the child and its reaped descendants, not of other children. Return
   its status as a shell reports it: 128 plus the signal if a signal ended it. */
static int reap(pid_t child, const char *name, struct rusage *usage) {
    int status;
    while (wait4(child, &status, 0, usage) < 0)
        if (errno != EINTR)
            fail("%s cannot be waited for: %s", name, strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Return the status to exit with: 0 if the comma-separated list contains the code; otherwise the code, or 1
   instead of a 0 that the list does not contain. */
static int status_of(int code, const char *accepted) {
    const char *entry = accepted;
    for (char *end; *entry; entry = *end ? end + 1 : end) {
        if (number(entry, "--exit-codes", &end) == code)
            return 0;
        if (*end && *end != ',')
            fail("--exit-codes: numbers divided by commas were expected, not '%s'", accepted);
    }
    return code ? code : 1;
}

/* Run the program as a child, write the report, and return the program's status. */
static int run_reported(char *const *program, const char *directory, int rank) {
    Text text = {0}, left = {0};
    text_add(&text, "{\"place\":");
    place_json(&text, rank);
    left_adopt();
    double begin = now();
    struct rusage usage;
    pid_t child = start(program);
    left_await(child);
    double wall = now() - begin;
    /* The child has ended, but its files in /proc exist until it is reaped. */
    double run_delay = counts_run_delay(child);
    Text io = {0};
    add_io(&io, child);
    int code = reap(child, program[0], &usage);
    left_end(&left);
    Counts used;
    counts_child(&used, &usage, run_delay);
    text_add(&text, ",\"status\":%d,\"wall\":", code);
    json_number(&text, wall);
    text_add(&text, ",\"user\":");
    json_number(&text, seconds(usage.ru_utime));
    text_add(&text, ",\"system\":");
    json_number(&text, seconds(usage.ru_stime));
    text_add(&text, ",\"max_rss\":%ld,\"io\":{%s},\"left\":[%s],\"used\":{", usage.ru_maxrss * 1024,
             io.used ? io.data : "", left.used ? left.data : "");
    text_free(&io);
    text_free(&left);
    counts_json(&text, &used);
    text_add(&text, "}}");
    write_report(directory, rank, &text);
    return code;
}

static void leave(void) {
    hydra_abort(EXIT_FAILURE);
}

int rank_main(int count, char **arguments) {
    fail_program("nm-rank"); /* the executable may be nm-box */
    int rank = -1;
    const char *cpus = NULL, *report = NULL, *library = NULL, *profile = NULL, *storage = NULL, *gate = NULL,
               *directory = NULL, *events = NULL, *caller = NULL, *here = NULL, *accepted = "0";
    if (count == 2 && strcmp(arguments[1], "--offered") == 0) {
        Text text = {0};
        counts_offered(&text);
        bool told = text_write(&text, STDOUT_FILENO);
        text_free(&text);
        return told ? 0 : 1;
    }
    int at = 1;
    for (; at + 1 < count && strcmp(arguments[at], "--") != 0; at += 2) {
        if (strcmp(arguments[at], "--cpus") == 0)
            cpus = arguments[at + 1];
        else if (strcmp(arguments[at], "--report") == 0)
            report = arguments[at + 1];
        else if (strcmp(arguments[at], "--rank") == 0)
            rank = rank_given(arguments[at + 1]);
        else if (strcmp(arguments[at], "--gate") == 0)
            gate = arguments[at + 1];
        else if (strcmp(arguments[at], "--storage") == 0)
            storage = arguments[at + 1];
        else if (strcmp(arguments[at], "--directory") == 0)
            directory = arguments[at + 1];
        else if (strcmp(arguments[at], "--here") == 0)
            here = arguments[at + 1];
        else if (strcmp(arguments[at], "--exit-codes") == 0)
            accepted = arguments[at + 1];
        else if (strcmp(arguments[at], "--caller") == 0)
            caller = arguments[at + 1];
        else if (strcmp(arguments[at], "--variable") == 0)
            take_variable(arguments[at + 1]);
        else if (strcmp(arguments[at], "--preload") == 0)
            library = arguments[at + 1];
        else if (strcmp(arguments[at], "--profile") == 0)
            profile = arguments[at + 1];
        else if (strcmp(arguments[at], "--events") == 0)
            events = arguments[at + 1];
        else
            break;
    }
    if (at + 1 >= count || strcmp(arguments[at], "--") != 0 || !library != !profile)
        fail("usage: nm-rank [--cpus 0,1] [--report DIR] [--storage DIR,DIR] [--rank N] [--gate DIR] "
             "[--directory DIR] [--here DIR] [--caller STATE] [--variable NAME=VALUE]... [--exit-codes 0,3] "
             "[--events NAME,NAME] [--preload LIBRARY --profile DIR] -- PROGRAM ARG...");
    char **program = arguments + at + 1;
    /* A program without MPI has its rank from nearmetal, which may itself be a rank of some launcher. */
    const bool launched = rank < 0;
    if (launched)
        rank = rank_of_launcher();
    fail_as(rank, launched ? leave : NULL);
    const bool hydra = launched && hydra_is_here();
    if (storage) {
        char *path = entry_of(storage, rank);
        set_variable("NEARMETAL_STORAGE", path);
        fill_in(program, "{storage}", path);
        free(path);
    }
    fill_in_ids(program);
    if (directory && chdir(directory))
        fail("--directory: %s: %s", directory, strerror(errno));
    if (!directory && here && chdir(here) == 0) /* else it is not visible here */
        directory = here;
    if (directory)
        set_variable("PWD", directory);
    if (cpus)
        pin(cpus, rank);
    if (profile)
        preload(library, profile);
    if (gate)
        wait_at_gate(gate);
    if (hydra)
        hydra_end_stdin();
    if (report && events)
        counts_open(events);
    if (caller)
        caller_take(caller);
    if (report || hydra) {
        struct rusage unused;
        int code = report ? status_of(run_reported(program, report, rank), accepted)
                          : reap(start(program), program[0], &unused);
        if (code && hydra)
            hydra_abort(code);
        return code;
    }
    execvp(program[0], program);
    fail("%s cannot be started: %s", program[0], strerror(errno));
}
