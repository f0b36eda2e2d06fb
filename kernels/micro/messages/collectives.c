/* Collectives: the time of MPI_Alltoall, MPI_Barrier and MPI_Allreduce, each called repeatedly. */
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"
#include "planted.h"

typedef struct Collective Collective;

struct Collective {
    void (*call)(const Collective *collective);
    World world;
    Common common;
    Arena arena;
    long bytes;
    double owed; /* calls of extra work not done yet */
    unsigned char *outgoing, *incoming;
};

static Collective *prepare(Spec *spec, const World *world, void (*call)(const Collective *)) {
    Collective *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->call = call;
    s->world = *world;
    s->common = spec_single(spec);
    if (world->size < 2)
        fail("%s: needs 2 ranks", spec->name);
    return s;
}

static void take_buffers(Collective *s, size_t bytes) {
    s->arena = arena_make(2 * arena_need(bytes), s->common.pages);
    s->outgoing = arena_take(&s->arena, bytes);
    s->incoming = arena_take(&s->arena, bytes);
    arena_touch(&s->arena);
}

/* Run a slice. A unit of work is one call. */
static void slice(void *state, long units, Slice *out) {
    Collective *s = state;
    Planted planted = plant(s->common.extra, units, &s->owed);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long call = 0; call < units + planted.units; call++)
        s->call(s);
    double spent = now() - start;
    out->count = 1;
    out->part[0] = (Part){.metric = "calls",
                          .seconds = planted_end(planted, start, spent),
                          .comm_seconds = spent,
                          .work = (double)units};
}

/* Return the number of calls in a verification: fewer for large messages. */
static long checked_calls(const Collective *s) {
    enum { CHECKED = 16, FEW = 2, MANY_BYTES = 1 << 16 };
    return s->bytes > MANY_BYTES ? FEW : CHECKED;
}

/* Return whether this rank spoils a value in this call, for tests: the last rank does in the last call. */
static bool spoils(const Collective *s, long call, long calls) {
    return s->common.corrupt && s->world.rank == s->world.size - 1 && call == calls - 1;
}

/* Set the result of a verification. wrong: number of wrong values on this rank; name: what they are. */
static void conclude(Verified *v, double start, long calls, const char *name, long wrong) {
    v->seconds = now() - start;
    v->work = (double)calls;
    MPI(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong == 0;
    text_add(&v->expected, "\"%s\":0", name);
    text_add(&v->found, "\"%s\":%ld,\"calls\":%ld", name, wrong, calls);
}

static void release(void *state) {
    Collective *s = state;
    if (s->outgoing)
        arena_free(&s->arena);
    free(s);
}

/* Alltoall: `bytes` from every rank to every rank. */

static void alltoall(const Collective *s) {
    MPI(MPI_Alltoall(s->outgoing, (int)s->bytes, MPI_BYTE, s->incoming, (int)s->bytes, MPI_BYTE,
                     MPI_COMM_WORLD));
}

static void *alltoall_prepare(Spec *spec, const World *world) {
    Collective *s = prepare(spec, world, alltoall);
    s->bytes = spec_integer(spec, "bytes", 8, 1, 1L << 26);
    take_buffers(s, (size_t)world->size * (size_t)s->bytes);
    return s;
}

static unsigned char sent(const Collective *s, long call, int from, int to, long i) {
    return (unsigned char)((uint64_t)(call * 31 + from * 13 + to * 101 + i * 7) + s->world.seed);
}

static void alltoall_verify(void *state, Verified *v) {
    Collective *s = state;
    long calls = checked_calls(s), wrong = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long call = 0; call < calls; call++) {
        for (int to = 0; to < s->world.size; to++)
            for (long i = 0; i < s->bytes; i++)
                s->outgoing[to * s->bytes + i] = sent(s, call, s->world.rank, to, i);
        s->call(s);
        if (spoils(s, call, calls))
            s->incoming[s->bytes / 2] ^= 1;
        for (int from = 0; from < s->world.size; from++)
            for (long i = 0; i < s->bytes; i++)
                wrong += s->incoming[from * s->bytes + i] != sent(s, call, from, s->world.rank, i);
    }
    conclude(v, start, calls, "wrong_bytes", wrong);
}

static const Kernel alltoall_kernel = {"alltoall", alltoall_prepare, slice, alltoall_verify, release};
LISTED(alltoall_kernel)

/* Allreduce: the sum of a vector of doubles over all ranks, on all ranks. */

static void allreduce(const Collective *s) {
    MPI(MPI_Allreduce(s->outgoing, s->incoming, (int)(s->bytes / (long)sizeof(double)), MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD));
}

static void *allreduce_prepare(Spec *spec, const World *world) {
    Collective *s = prepare(spec, world, allreduce);
    s->bytes = spec_integer(spec, "bytes", 8, sizeof(double), 1L << 28);
    if (s->bytes % (long)sizeof(double))
        fail("allreduce: bytes=%ld is not a multiple of %zu", s->bytes, sizeof(double));
    take_buffers(s, (size_t)s->bytes);
    return s;
}

/* Verify sums of small whole numbers, which are exact in any order of addition. */
static void allreduce_verify(void *state, Verified *v) {
    Collective *s = state;
    double *mine = (double *)s->outgoing, *sum = (double *)s->incoming;
    double ranks = 0.5 * s->world.size * (s->world.size + 1);
    long calls = checked_calls(s), count = s->bytes / (long)sizeof *sum, wrong = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long call = 0; call < calls; call++) {
        for (long i = 0; i < count; i++)
            mine[i] = (s->world.rank + 1) * (double)(i % 1000 + call + 1);
        s->call(s);
        if (spoils(s, call, calls))
            sum[count / 2] += 1;
        for (long i = 0; i < count; i++)
            wrong += sum[i] != ranks * (double)(i % 1000 + call + 1);
    }
    conclude(v, start, calls, "wrong_elements", wrong);
}

static const Kernel allreduce_kernel = {"allreduce", allreduce_prepare, slice, allreduce_verify, release};
LISTED(allreduce_kernel)

/* Barrier: no rank leaves before all ranks have entered. */

static void barrier(const Collective *s) {
    (void)s;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

static void *barrier_prepare(Spec *spec, const World *world) {
    return prepare(spec, world, barrier);
}

static const double lateness = 2e-4; /* seconds */

/* The late rank enters the barrier `lateness` seconds after it has received a message from every other rank.
   So each of the others, by its own clock, must leave at least `lateness` seconds after it sent its message.
   This holds under any load of the machine, and compares no clocks. */
static void be_late(const Collective *s) {
    for (int other = 0; other < s->world.size; other++)
        if (other != s->world.rank)
            MPI(MPI_Recv(NULL, 0, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (double heard = now(); now() - heard < lateness;)
        ;
    s->call(s);
}

/* Return whether this rank left the barrier too early. spoiled: whether it skips the barrier, for tests. */
static bool leaves_early(const Collective *s, int late, bool spoiled) {
    double spoke = now();
    MPI(MPI_Send(NULL, 0, MPI_BYTE, late, 0, MPI_COMM_WORLD));
    if (!spoiled)
        s->call(s);
    bool early = now() - spoke < lateness;
    if (spoiled)
        s->call(s);
    return early;
}

static void barrier_verify(void *state, Verified *v) {
    Collective *s = state;
    long calls = 2L * s->world.size, early = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long call = 0; call < calls; call++) {
        int late = (int)((call + 1) % s->world.size);
        if (late == s->world.rank)
            be_late(s);
        else
            early += leaves_early(s, late, spoils(s, call, calls));
    }
    conclude(v, start, calls, "left_early", early);
}

static const Kernel barrier_kernel = {"barrier", barrier_prepare, slice, barrier_verify, release};
LISTED(barrier_kernel)
