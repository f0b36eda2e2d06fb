/* Ping-pong: a message from rank 0 to rank 1 and back, plain MPI_Send and MPI_Recv. Other ranks stand by. */
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"

typedef struct {
    World world;
    Common common;
    Arena arena;
    long bytes, trips;
    double owed; /* trips of extra work not done yet */
    unsigned char *buffer;
} Pingpong;

static void travel(const Pingpong *s, int bytes, long trips) {
    unsigned char *buffer = s->buffer;
    if (s->world.rank == 0)
        for (long trip = 0; trip < trips; trip++) {
            MPI(MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
            MPI(MPI_Recv(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    else if (s->world.rank == 1)
        for (long trip = 0; trip < trips; trip++) {
            MPI(MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            MPI(MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD));
        }
}

static void *prepare(Spec *spec, const World *world) {
    Pingpong *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->bytes = spec_integer(spec, "bytes", 8, 0, 1L << 30);
    s->trips = spec_integer(spec, "trips", 1000, 1, 1L << 30);
    if (world->size < 2)
        fail("pingpong: needs 2 ranks");
    size_t bytes = (size_t)s->bytes + 1; /* an empty message has an address too */
    s->arena = arena_make(arena_need(bytes), s->common.pages);
    s->buffer = arena_take(&s->arena, bytes);
    arena_touch(&s->arena);
    return s;
}

/* Extra work is more trips. Where a slice holds too few for whole ones, each rank waits that share of the
   time that its trips took: the time of large messages does not follow their size closely enough to plant 3 %
   by longer ones (over TCP 3 % more bytes than a socket buffer took 20 % longer). */
static void slice(void *state, Slice *out) {
    Pingpong *s = state;
    enum { FEW = 3 };
    double extra = s->common.extra * (double)s->trips;
    long trips = extra < FEW ? 0 : take_whole(&s->owed, extra);
    double wait = extra < FEW ? s->common.extra : 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    travel(s, (int)s->bytes, s->trips + trips);
    double travelled = now() - start, seconds = travelled;
    while (seconds < (1 + wait) * travelled)
        seconds = now() - start;
    bool idle = s->world.rank > 1;
    out->count = 1;
    out->part[0] = (Part){.metric = "messages",
                          .seconds = idle ? 0 : seconds,
                          .comm_seconds = idle ? 0 : travelled,
                          .work = 2.0 * (double)s->trips};
}

static unsigned char pattern(const Pingpong *s, long trip, long i) {
    return (unsigned char)((uint64_t)(trip * 31 + i * 7) + s->world.seed);
}

/* Rank 1 adds 1 to every byte before it answers: an answer that never left rank 0 is found as well. */
static long wrong_bytes(const Pingpong *s, long trip, int added) {
    long wrong = 0;
    for (long i = 0; i < s->bytes; i++)
        wrong += s->buffer[i] != (unsigned char)(pattern(s, trip, i) + added);
    return wrong;
}

static long checked_trip(const Pingpong *s, long trip) {
    int bytes = (int)s->bytes;
    if (s->world.rank == 0) {
        for (long i = 0; i < s->bytes; i++)
            s->buffer[i] = pattern(s, trip, i);
        MPI(MPI_Send(s->buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
        MPI(MPI_Recv(s->buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        return wrong_bytes(s, trip, 1);
    }
    MPI(MPI_Recv(s->buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    long wrong = wrong_bytes(s, trip, 0);
    for (long i = 0; i < s->bytes; i++)
        s->buffer[i]++;
    if (s->common.corrupt && trip == 0)
        s->buffer[s->bytes / 2] ^= 1;
    MPI(MPI_Send(s->buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD));
    return wrong;
}

static void verify(void *state, Verified *v) {
    Pingpong *s = state;
    enum { CHECKED = 64, FEW = 2, MANY_BYTES = 1 << 16 };
    long trips = s->bytes > MANY_BYTES ? FEW : CHECKED, wrong = 0;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (long trip = 0; trip < trips && s->world.rank < 2; trip++)
        wrong += checked_trip(s, trip);
    v->seconds = now() - start;
    v->work = 2.0 * (double)trips;
    MPI(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong == 0;
    text_add(&v->expected, "\"wrong_bytes\":0");
    text_add(&v->found, "\"wrong_bytes\":%ld,\"bytes\":%ld,\"trips\":%ld", wrong, s->bytes, trips);
}

static void release(void *state) {
    Pingpong *s = state;
    arena_free(&s->arena);
    free(s);
}

const Kernel pingpong_kernel = {"pingpong", prepare, slice, verify, release};
