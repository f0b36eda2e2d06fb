/* Ping-pong: a message from rank 0 to rank 1 and back, while other ranks are idle. This file has the code
   that all carriers share, and the carrier MPI, by MPI_Send and MPI_Recv. */
#include "pingpong.h"

#include <stdlib.h>

#include "fail.h"
#include "planted.h"

static void begin_together(Pingpong *s) {
    if (s->world.rank < 2 && s->carrier->settle)
        s->carrier->settle(s);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void *pingpong_prepare(Spec *spec, const World *world, const Carrier *carrier) {
    Pingpong *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->carrier = carrier;
    s->world = *world;
    s->common = spec_single(spec);
    s->bytes = spec_integer(spec, "bytes", carrier->default_bytes, carrier->least_bytes, carrier->most_bytes);
    s->peer = 1 - world->rank;
    s->socket = -1;
    if (world->size < 2)
        fail("%s: needs 2 ranks", spec->name);
    size_t bytes = (size_t)s->bytes + 1; /* an empty message has an address too */
    s->arena = arena_make(arena_need(bytes), s->common.pages);
    s->buffer = arena_take(&s->arena, bytes);
    arena_touch(&s->arena);
    if (carrier->open)
        carrier->open(s, spec);
    return s;
}

/* Run a slice. A unit of work is one round trip. A slice in which a message was lost reports no work, and so
   has no latency. */
void pingpong_slice(void *state, long units, Slice *out) {
    Pingpong *s = state;
    Planted planted = plant(s->common.extra, units, &s->owed);
    begin_together(s);
    double start = now();
    bool whole = s->carrier->travel(s, units + planted.units);
    double travelled = now() - start, seconds = planted_end(planted, start, travelled);
    bool idle = s->world.rank > 1;
    out->count = 1;
    out->part[0] = (Part){.metric = "messages",
                          .seconds = idle ? 0 : seconds,
                          .comm_seconds = idle ? 0 : travelled,
                          .work = whole ? 2.0 * (double)units : 0};
}

static unsigned char pattern(const Pingpong *s, long trip, long i) {
    return (unsigned char)((uint64_t)(trip * 31 + i * 7) + s->world.seed);
}

/* Return the number of wrong bytes in a message. Rank 1 adds 1 to every byte before it answers, so that an
   answer cannot be mistaken for the message itself. */
static long wrong_bytes(const Pingpong *s, long trip, int added) {
    long wrong = 0;
    for (long i = 0; i < s->bytes; i++)
        wrong += s->buffer[i] != (unsigned char)(pattern(s, trip, i) + added);
    return wrong;
}

/* Make a round trip and check its messages. Return false if a message is lost. */
static bool checked_trip(Pingpong *s, long trip, long *wrong) {
    if (s->world.rank == 0) {
        for (long i = 0; i < s->bytes; i++)
            s->buffer[i] = pattern(s, trip, i);
        s->carrier->send(s);
        bool came = s->carrier->receive(s);
        *wrong += came ? wrong_bytes(s, trip, 1) : 0;
        return came;
    }
    if (!s->carrier->receive(s))
        return false;
    *wrong += wrong_bytes(s, trip, 0);
    for (long i = 0; i < s->bytes; i++)
        s->buffer[i]++;
    if (s->common.corrupt && trip == 0)
        s->buffer[s->bytes / 2] ^= 1;
    s->carrier->send(s);
    return true;
}

void pingpong_verify(void *state, Verified *v) {
    Pingpong *s = state;
    enum { CHECKED = 64, FEW = 2, MANY_BYTES = 1 << 16 };
    long trips = s->bytes > MANY_BYTES ? FEW : CHECKED, trip = 0;
    long wrong[2] = {0}; /* bytes, lost trips as rank 0 knows them */
    begin_together(s);
    double start = now();
    if (s->world.rank < 2)
        while (trip < trips && checked_trip(s, trip, &wrong[0]))
            trip++;
    v->seconds = now() - start;
    v->work = 2.0 * (double)trips;
    wrong[1] = s->world.rank == 0 && trip < trips;
    MPI(MPI_Allreduce(MPI_IN_PLACE, wrong, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong[0] == 0 && wrong[1] == 0;
    text_add(&v->expected, "\"wrong_bytes\":0,\"lost\":0");
    text_add(&v->found, "\"wrong_bytes\":%ld,\"lost\":%ld,\"bytes\":%ld,\"trips\":%ld", wrong[0], wrong[1],
             s->bytes, trips);
}

void pingpong_release(void *state) {
    Pingpong *s = state;
    if (s->carrier->close)
        s->carrier->close(s);
    arena_free(&s->arena);
    free(s);
}

static void send_message(Pingpong *s) {
    MPI(MPI_Send(s->buffer, (int)s->bytes, MPI_BYTE, s->peer, 0, MPI_COMM_WORLD));
}

static bool receive_message(Pingpong *s) {
    MPI(MPI_Recv(s->buffer, (int)s->bytes, MPI_BYTE, s->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return true;
}

static bool travel(Pingpong *s, long trips) {
    return pingpong_travel(s, trips, send_message, receive_message);
}

static const Carrier mpi = {.most_bytes = 1L << 30,
                            .default_bytes = 8,
                            .travel = travel,
                            .send = send_message,
                            .receive = receive_message};

static void *prepare(Spec *spec, const World *world) {
    return pingpong_prepare(spec, world, &mpi);
}

static const Kernel pingpong_kernel = {"pingpong", prepare, pingpong_slice, pingpong_verify,
                                       pingpong_release};
LISTED(pingpong_kernel)
