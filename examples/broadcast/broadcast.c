/* The time of a broadcast. In the source: kernels/micro/broadcast.c. */
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"

typedef struct {
    World world;
    Common common;
    double owed; /* calls of extra work not done yet */
    double value;
} Broadcast;

static double timed(Broadcast *s, long calls) {
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long call = 0; call < calls; call++)
        MPI(MPI_Bcast(&s->value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    return now() - start;
}

static void *prepare(Spec *spec, const World *world) {
    Broadcast *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    *s = (Broadcast){.world = *world, .common = spec_single(spec)};
    return s;
}

static void slice(void *state, long units, Slice *out) {
    Broadcast *s = state;
    double seconds = timed(s, units + take_whole(&s->owed, s->common.extra * (double)units));
    out->count = 1;
    out->part[0] =
        (Part){.metric = "calls", .seconds = seconds, .comm_seconds = seconds, .work = (double)units};
}

static void verify(void *state, Verified *v) {
    Broadcast *s = state;
    s->value = s->world.rank == 0 ? 42 : 0;
    v->seconds = timed(s, 1);
    v->work = 1;
    int wrong = s->common.corrupt || s->value != 42;
    MPI(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong == 0;
    text_add(&v->expected, "\"wrong_ranks\":0");
    text_add(&v->found, "\"wrong_ranks\":%d", wrong);
}

static const Kernel broadcast_kernel = {"broadcast", prepare, slice, verify, free};
LISTED(broadcast_kernel)
