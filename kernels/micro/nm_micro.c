/* nm-micro (--tokens DIR | --once [--slices N [--fill MICROSECONDS]]) [--seed N] [--interface NAME] [--events
   NAME,NAME] KERNEL-SPEC...: all micro-kernels in one MPI program. It prints raw times as JSON Lines, and
   computes no statistics except over ranks: the longest of the ranks' seconds and run delays, and the sum of
   all other counts. tokens.h lists the tokens. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counts.h"
#include "fail.h"
#include "kernel.h"
#include "levels.h"
#include "place.h"
#include "tokens.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

enum { MOST_KERNELS = MOST_LEVELS }; /* each is a section of a profile */

Listed *listed_kernels;

typedef struct {
    const Kernel *kernel;
    void *state;
    long units;       /* units of a slice whose token names no number */
    long huge, total; /* kB of this rank; huge is -1 if Linux does not report it */
} Job;

typedef struct {
    World world;
    const char *tokens; /* NULL: --once */
    long slices;        /* of each kernel after its verification, with --once */
    double fill;        /* seconds that these last at least: units are doubled until they do */
    int output;         /* descriptor of rank 0 */
    int count;
    Spec spec[MOST_KERNELS];
    Job job[MOST_KERNELS];
} Run;

static void abort_all(void) {
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t whole_number(const char *option, const char *text) {
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (*end || end == text || errno)
        fail("%s: a whole number was expected, not '%s'", option, text);
    return number;
}

static void parse_arguments(Run *run, int count, char **arguments) {
    bool once = false;
    run->world.interface = "lo";
    for (int at = 1; at < count; at++) {
        const char *argument = arguments[at];
        if (strcmp(argument, "--once") == 0)
            once = true;
        else if (strcmp(argument, "--tokens") == 0 && at + 1 < count)
            run->tokens = arguments[++at];
        else if (strcmp(argument, "--interface") == 0 && at + 1 < count)
            run->world.interface = arguments[++at];
        else if (strcmp(argument, "--events") == 0 && at + 1 < count)
            counts_open(arguments[++at]);
        else if (strcmp(argument, "--seed") == 0 && at + 1 < count)
            run->world.seed = whole_number(argument, arguments[++at]);
        else if (strcmp(argument, "--slices") == 0 && at + 1 < count)
            run->slices = (long)whole_number(argument, arguments[++at]);
        else if (strcmp(argument, "--fill") == 0 && at + 1 < count)
            run->fill = 1e-6 * (double)whole_number(argument, arguments[++at]);
        else if (argument[0] == '-')
            fail("unknown option '%s'", argument);
        else if (run->count == MOST_KERNELS)
            fail("more than %d kernels", MOST_KERNELS);
        else
            run->spec[run->count++] = spec_parse(argument);
    }
    if (once == (run->tokens != NULL) || run->count == 0 || (run->slices && !once))
        fail("usage: nm-micro (--tokens DIR | --once [--slices N [--fill MICROSECONDS]]) [--seed N] "
             "[--interface NAME] "
             "[--events NAME,NAME] KERNEL-SPEC...");
}

static const Kernel *find_kernel(const char *name) {
    for (const Listed *listed = listed_kernels; listed; listed = listed->next)
        if (strcmp(listed->kernel->name, name) == 0)
            return listed->kernel;
    fail("unknown kernel '%s'", name);
}

static void prepare_all(Run *run) {
    for (int k = 0; k < run->count; k++) {
        Job *job = &run->job[k];
        job->kernel = find_kernel(run->spec[k].name);
        job->units = spec_integer(&run->spec[k], "units", 1, 1, MOST_UNITS);
        long huge = huge_kb(), total = arena_kb();
        job->state = job->kernel->prepare(&run->spec[k], &run->world);
        spec_end(&run->spec[k]);
        job->huge = huge < 0 ? -1 : huge_kb() - huge;
        job->total = arena_kb() - total;
    }
}

/* Let every pair of ranks exchange messages in both directions before the first token. MPI libraries connect
   at the first message, and a rank that waits in read() makes no progress on a connection. */
static void connect_all(const World *world) {
    char out = 0, in = 0;
    for (int distance = 1; distance < world->size; distance++) {
        int to = (world->rank + distance) % world->size;
        int from = (world->rank + world->size - distance) % world->size;
        for (int turn = 0; turn < 2; turn++)
            MPI(MPI_Sendrecv(&out, 1, MPI_CHAR, to, 0, &in, 1, MPI_CHAR, from, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE));
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void emit(const Run *run, Text *line) {
    text_add(line, "\n");
    if (!text_write(line, run->output))
        fail("a line cannot be written: %s", strerror(errno));
    text_free(line);
}

/* On rank 0, add the places of all ranks, separated by commas. */
static void add_places(const Run *run, Text *line) {
    Text mine = {0};
    place_json(&mine, run->world.rank);
    int length = (int)mine.used, size = run->world.size;
    bool first = run->world.rank == 0;
    int *lengths = calloc(2 * (size_t)size + 1, sizeof *lengths), *offsets = lengths + size;
    if (!lengths)
        fail("out of memory");
    MPI(MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD));
    for (int r = 0; first && r < size; r++)
        offsets[r + 1] = offsets[r] + lengths[r];
    char *all = first ? malloc((size_t)offsets[size] + 1) : NULL;
    if (first && !all)
        fail("out of memory");
    MPI(MPI_Gatherv(mine.data, length, MPI_CHAR, all, lengths, offsets, MPI_CHAR, 0, MPI_COMM_WORLD));
    for (int r = 0; first && r < size; r++)
        text_add(line, "%s%.*s", r ? "," : "", lengths[r], all + offsets[r]);
    free(all);
    free(lengths);
    text_free(&mine);
}

static void add_pages(const Run *run, Text *line) {
    for (int k = 0; k < run->count; k++) {
        long mine[2] = {run->job[k].huge, run->job[k].total}, sum[2] = {0, 0}, least = 0;
        MPI(MPI_Reduce(mine, sum, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD));
        MPI(MPI_Reduce(mine, &least, 1, MPI_LONG, MPI_MIN, 0, MPI_COMM_WORLD));
        text_add(line, "%s{\"kernel\":%d,\"huge_kb\":", k ? "," : "", k);
        if (least < 0)
            text_add(line, "null");
        else
            text_add(line, "%ld", sum[0]);
        text_add(line, ",\"total_kb\":%ld}", sum[1]);
    }
}

static void tell_ready(Run *run, double init, double prepare) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI(MPI_Get_library_version(version, &length));
    version[strcspn(version, "\n")] = 0;
    double mine[2] = {init, prepare}, most[2] = {0, 0};
    MPI(MPI_Reduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD));
    Text line = {0};
    text_add(&line, "{\"event\":\"ready\",\"mpi\":");
    json_string(&line, version);
    text_add(&line, ",\"ranks\":%d,\"init_s\":%.9f,\"prepare_s\":%.9f,\"places\":[", run->world.size, most[0],
             most[1]);
    add_places(run, &line);
    text_add(&line, "],\"pages\":[");
    add_pages(run, &line);
    text_add(&line, "]}");
    if (run->world.rank == 0)
        emit(run, &line);
    text_free(&line);
}

/* Return the counts of all ranks: the longest run delay, and the sums of all others. A count that is not
   available on one rank is not available (NAN). */
static Counts used_by_all(const double *all, int ranks, int stride) {
    Counts used = {{0}};
    for (int c = 0; c < COUNTS; c++)
        for (int r = 0; r < ranks; r++) {
            double more = all[r * stride + c];
            if (c != RUN_DELAY || isnan(more))
                used.value[c] += more;
            else if (!(used.value[c] >= more))
                used.value[c] = isnan(used.value[c]) ? NAN : more;
        }
    return used;
}

/* Run a slice of kernel k, and print its line on rank 0. Each part has the seconds of the slowest rank, and
   that rank's seconds in MPI calls. */
static void run_slice(Run *run, int k, long units) {
    const Job *job = &run->job[k];
    Slice slice = {0};
    Counts before, after;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    counts_self(&before);
    job->kernel->slice(job->state, units, &slice);
    counts_self(&after);
    enum { USED = 2 * MOST_PARTS + 1, FIELDS = USED + COUNTS };
    double mine[FIELDS] = {(double)k};
    for (int c = 0; c < COUNTS; c++)
        mine[USED + c] = after.value[c] - before.value[c];
    for (int p = 0; p < slice.count; p++) {
        mine[1 + 2 * p] = slice.part[p].seconds;
        mine[2 + 2 * p] = slice.part[p].comm_seconds;
    }
    bool first = run->world.rank == 0;
    double *all = first ? malloc(sizeof mine * (size_t)run->world.size) : NULL;
    if (first && !all)
        fail("out of memory");
    MPI(MPI_Gather(mine, FIELDS, MPI_DOUBLE, all, FIELDS, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    if (!first)
        return;
    Text line = {0};
    text_add(&line, "{\"event\":\"slice\",\"kernel\":%d,\"name\":\"%s\",\"parts\":[", k, job->kernel->name);
    for (int p = 0; p < slice.count; p++) {
        const double *slowest = all;
        for (int r = 0; r < run->world.size; r++) {
            const double *of_rank = all + r * FIELDS;
            if (of_rank[0] != (double)k)
                fail("rank %d was given a token for kernel %g, rank 0 for %d", r, of_rank[0], k);
            if (of_rank[1 + 2 * p] > slowest[1 + 2 * p])
                slowest = of_rank;
        }
        text_add(&line, "%s{\"metric\":\"%s\",\"seconds\":%.9f,\"comm_seconds\":%.9f,\"work\":%.17g}",
                 p ? "," : "", slice.part[p].metric, slowest[1 + 2 * p], slowest[2 + 2 * p],
                 slice.part[p].work);
    }
    text_add(&line, "],\"used\":{");
    Counts used = used_by_all(all + USED, run->world.size, FIELDS);
    counts_json(&line, &used);
    text_add(&line, "}}");
    free(all);
    emit(run, &line);
}

/* Double the units of a slice until it takes at least run->fill seconds on the slowest rank. */
static void fill_slice(const Run *run, Job *job) {
    for (double seconds = 0; job->units <= MOST_UNITS / 2; job->units *= 2) {
        Slice slice = {0};
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        job->kernel->slice(job->state, job->units, &slice);
        seconds = 0;
        for (int p = 0; p < slice.count; p++)
            seconds += slice.part[p].seconds;
        MPI(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
        if (seconds >= run->fill)
            return;
    }
}

static bool run_verify(Run *run, int k) {
    const Job *job = &run->job[k];
    Verified verified = {0};
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Pcontrol(FIRST_LEVEL + k));
    job->kernel->verify(job->state, &verified);
    MPI(MPI_Pcontrol(NO_SECTION));
    double seconds = 0;
    int ok = verified.ok;
    MPI(MPI_Reduce(&verified.seconds, &seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD));
    MPI(MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (run->world.rank == 0) {
        Text line = {0};
        text_add(&line, "{\"event\":\"verify\",\"kernel\":%d,\"name\":\"%s\",\"ok\":%s,\"expected\":{%s}", k,
                 job->kernel->name, ok ? "true" : "false", verified.expected.data);
        text_add(&line, ",\"found\":{%s},\"seconds\":%.9f,\"work\":%.17g}", verified.found.data, seconds,
                 verified.work);
        emit(run, &line);
    }
    text_free(&verified.expected);
    text_free(&verified.found);
    return ok;
}

static void open_output(Run *run) {
    char path[PATH_MAX];
    run->output = STDOUT_FILENO;
    if (!run->tokens || run->world.rank != 0)
        return;
    if (snprintf(path, sizeof path, "%s/out", run->tokens) >= (int)sizeof path)
        fail("--tokens: path too long");
    run->output = open(path, O_WRONLY | O_CLOEXEC);
    if (run->output < 0)
        fail("%s cannot be opened: %s", path, strerror(errno));
}

static void serve_tokens(Run *run, Tokens *tokens) {
    for (;;) {
        Token token = tokens_next(tokens, run->count);
        if (token.what == 'q')
            return;
        if (token.what == 's')
            run_slice(run, token.kernel, token.units ? token.units : run->job[token.kernel].units);
        else
            run_verify(run, token.kernel);
    }
}

int main(int count, char **arguments) {
    static Run run; /* too large for the stack */
    double begin = now();
    int level; /* threads compute, the first alone talks */
    if (MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        fail("MPI_Init_thread failed");
    double init = now() - begin;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &run.world.rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &run.world.size));
    fail_as(run.world.rank, abort_all);
    signal(SIGPIPE, SIG_IGN); /* a closed reader is reported as an error */
    parse_arguments(&run, count, arguments);
    fail_tell(run.tokens);

    Tokens tokens = {.descriptor = -1};
    if (run.tokens)
        tokens = tokens_open(run.tokens, run.world.rank);
    open_output(&run);
    begin = now();
    prepare_all(&run);
    connect_all(&run.world);
    tell_ready(&run, init, now() - begin);

    bool ok = true;
    if (run.tokens)
        serve_tokens(&run, &tokens);
    else
        for (int k = 0; k < run.count; k++) {
            ok = run_verify(&run, k) && ok;
            if (run.slices)
                fill_slice(&run, &run.job[k]);
            for (long n = 0; n < run.slices; n++)
                run_slice(&run, k, run.job[k].units);
        }

    for (int k = 0; k < run.count; k++)
        run.job[k].kernel->release(run.job[k].state);
#ifdef __SANITIZE_ADDRESS__
    if (__lsan_do_recoverable_leak_check())
        fail("memory was leaked");
#endif
    MPI(MPI_Finalize());
    return ok ? 0 : 1;
}
