/* Random rings, as the HPC Challenge benchmark defines them. The ranks form rings in random order. In a step
   each rank sends a message to both of its neighbours, and receives one from both: once by MPI_Sendrecv, and
   once by non-blocking calls; the shorter time counts. The time of a ring is that of its slowest rank, and
   the result is the geometric mean of the rings. The time of a message is half a step, since a rank sends two
   messages in a step. */
#include <math.h>
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"
#include "planted.h"
#include "random.h"

enum { LEFT, RIGHT, SIDES };

typedef struct Ring Ring;

typedef void (*Step)(const Ring *ring, const int *neighbour);

struct Ring {
    World world;
    Common common;
    Arena arena;
    long bytes, patterns;
    double owed;                                      /* steps of extra work not done yet */
    int (*neighbours)[SIDES];                         /* by pattern */
    double *seconds;                                  /* by pattern */
    unsigned char *outgoing[SIDES], *incoming[SIDES]; /* by the neighbour they go to and come from */
};

/* Do a step by MPI_Sendrecv. A message that travels right comes from the left neighbour. The tag is the
   direction, since with two ranks both neighbours are the same rank. */
static void step_sendrecv(const Ring *s, const int *neighbour) {
    for (int to = RIGHT; to >= LEFT; to--) {
        int from = 1 - to;
        MPI(MPI_Sendrecv(s->outgoing[to], (int)s->bytes, MPI_BYTE, neighbour[to], to, s->incoming[from],
                         (int)s->bytes, MPI_BYTE, neighbour[from], to, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

static void step_nonblocking(const Ring *s, const int *neighbour) {
    MPI_Request requests[2 * SIDES];
    for (int from = LEFT; from < SIDES; from++)
        MPI(MPI_Irecv(s->incoming[from], (int)s->bytes, MPI_BYTE, neighbour[from], 1 - from, MPI_COMM_WORLD,
                      &requests[from]));
    for (int to = LEFT; to < SIDES; to++)
        MPI(MPI_Isend(s->outgoing[to], (int)s->bytes, MPI_BYTE, neighbour[to], to, MPI_COMM_WORLD,
                      &requests[SIDES + to]));
    MPI(MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE));
}

static const Step ways[] = {step_sendrecv, step_nonblocking};

enum { WAYS = sizeof ways / sizeof *ways };

/* Draw the order of the rings from the seed, the same on every rank, and note this rank's neighbours. */
static void draw_rings(Ring *s) {
    int size = s->world.size, *order = malloc((size_t)size * sizeof *order);
    if (!order)
        fail("out of memory");
    for (int r = 0; r < size; r++)
        order[r] = r;
    uint64_t x = (2 * s->world.seed + 1) & random_mask; /* odd: the longest period */
    for (long pattern = 0; pattern < s->patterns; pattern++) {
        for (int r = size - 1; r > 0; r--) {
            int other = (int)(random_next(&x) * (r + 1)), kept = order[r];
            order[r] = order[other];
            order[other] = kept;
        }
        int at = 0;
        while (order[at] != s->world.rank)
            at++;
        s->neighbours[pattern][LEFT] = order[(at + size - 1) % size];
        s->neighbours[pattern][RIGHT] = order[(at + 1) % size];
    }
    free(order);
}

static void *prepare(Spec *spec, const World *world) {
    Ring *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_single(spec);
    s->bytes = spec_integer(spec, "bytes", 8, 0, 1L << 28);
    s->patterns = spec_integer(spec, "patterns", 8, 1, 1L << 16);
    if (world->size < 2)
        fail("ring: needs 2 ranks");
    s->neighbours = calloc((size_t)s->patterns, sizeof *s->neighbours);
    s->seconds = calloc((size_t)s->patterns, sizeof *s->seconds);
    if (!s->neighbours || !s->seconds)
        fail("out of memory");
    draw_rings(s);
    size_t bytes = (size_t)s->bytes + 1; /* an empty message has an address too */
    s->arena = arena_make(2 * SIDES * arena_need(bytes), s->common.pages);
    for (int side = LEFT; side < SIDES; side++) {
        s->outgoing[side] = arena_take(&s->arena, bytes);
        s->incoming[side] = arena_take(&s->arena, bytes);
    }
    arena_touch(&s->arena);
    return s;
}

static double timed(const Ring *s, Step step, long pattern, long steps, Planted planted) {
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long n = 0; n < steps + planted.units; n++)
        step(s, s->neighbours[pattern]);
    return planted_end(planted, start, now() - start);
}

/* Run a slice. A unit of work is one step of every ring in each of the two ways. The reported seconds are the
   geometric mean of the rings times their number. */
static void slice(void *state, long units, Slice *out) {
    Ring *s = state;
    for (long pattern = 0; pattern < s->patterns; pattern++) {
        Planted planted = plant(s->common.extra, units, &s->owed);
        double first = timed(s, ways[0], pattern, units, planted);
        double second = timed(s, ways[1], pattern, units, planted);
        s->seconds[pattern] = fmin(first, second);
    }
    MPI(MPI_Allreduce(MPI_IN_PLACE, s->seconds, (int)s->patterns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    double logarithms = 0, patterns = (double)s->patterns;
    for (long pattern = 0; pattern < s->patterns; pattern++)
        logarithms += log(s->seconds[pattern]);
    double seconds = patterns * exp(logarithms / patterns);
    out->count = 1;
    out->part[0] = (Part){.metric = "messages",
                          .seconds = seconds,
                          .comm_seconds = seconds,
                          .work = SIDES * (double)units * patterns};
}

/* Return byte i of the message that rank `from` sends to its neighbour `to`. */
static unsigned char expected(const Ring *s, long turn, int from, int to, long i) {
    return (unsigned char)((uint64_t)(turn * 31 + from * 13 + to * 101 + i * 7) + s->world.seed);
}

static long wrong_bytes(const Ring *s, long turn, const int *neighbour) {
    long wrong = 0;
    for (int from = LEFT; from < SIDES; from++)
        for (long i = 0; i < s->bytes; i++)
            wrong += s->incoming[from][i] != expected(s, turn, neighbour[from], 1 - from, i);
    return wrong;
}

static void verify(void *state, Verified *v) {
    Ring *s = state;
    long turns = WAYS * s->patterns, wrong = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long turn = 0; turn < turns; turn++) {
        const int *neighbour = s->neighbours[turn / WAYS];
        for (int to = LEFT; to < SIDES; to++)
            for (long i = 0; i < s->bytes; i++)
                s->outgoing[to][i] = expected(s, turn, s->world.rank, to, i);
        ways[turn % WAYS](s, neighbour);
        if (s->common.corrupt && turn == turns - 1 && s->world.rank == s->world.size - 1)
            s->incoming[LEFT][s->bytes / 2] ^= 1;
        wrong += wrong_bytes(s, turn, neighbour);
    }
    v->seconds = now() - start;
    v->work = SIDES * (double)turns;
    MPI(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong == 0;
    text_add(&v->expected, "\"wrong_bytes\":0");
    text_add(&v->found, "\"wrong_bytes\":%ld,\"bytes\":%ld,\"rings\":%ld", wrong, s->bytes, s->patterns);
}

static void release(void *state) {
    Ring *s = state;
    arena_free(&s->arena);
    free(s->seconds);
    free(s->neighbours);
    free(s);
}

static const Kernel ring_kernel = {"ring", prepare, slice, verify, release};
LISTED(ring_kernel)
