/* Ping-pong over any carrier: MPI, TCP, UDP. One way of going to and fro, of planting, checking and timing,
   so that a layer can be compared with the layer below it. */
#ifndef NEARMETAL_PINGPONG_H
#define NEARMETAL_PINGPONG_H

#include "kernel.h"

typedef struct Pingpong Pingpong;

/* A carrier of messages between ranks 0 and 1; the others take no part in send, receive and settle.
   travel: pingpong_travel with its own send and receive; receive: false where the message is lost, which ends
   the slice or the verification. settle: throw away what came too late; runs before each slice and each
   verification. close: of every rank. */
typedef struct {
    long least_bytes, most_bytes, default_bytes;
    void (*open)(Pingpong *pingpong, Spec *spec);
    bool (*travel)(Pingpong *pingpong, long trips);
    void (*send)(Pingpong *pingpong);
    bool (*receive)(Pingpong *pingpong);
    void (*settle)(Pingpong *pingpong);
    void (*close)(Pingpong *pingpong);
} Carrier;

struct Pingpong {
    const Carrier *carrier;
    World world;
    Common common;
    Arena arena;
    long bytes;
    double owed; /* trips of extra work not done yet */
    unsigned char *buffer;
    int peer, socket; /* rank; descriptor, -1 where the carrier is none */
    bool spin;
    long drop, answers; /* of tests: rank 1 leaves out each drop-th answer */
};

/* So many trips; whether every message arrived. Rank 0 knows it of all of them: a message that never comes
   has no answer. Inline, so that the calls of each carrier are direct: through pointers they cost 1 % of an
   MPI message by shared memory. */
static inline __attribute__((always_inline)) bool
pingpong_travel(Pingpong *s, long trips, void (*send)(Pingpong *), bool (*receive)(Pingpong *)) {
    if (s->world.rank == 0)
        for (long trip = 0; trip < trips; trip++) {
            send(s);
            if (!receive(s))
                return false;
        }
    else if (s->world.rank == 1)
        for (long trip = 0; trip < trips; trip++) {
            if (!receive(s))
                return false;
            send(s);
        }
    return true;
}

void *pingpong_prepare(Spec *spec, const World *world, const Carrier *carrier);
void pingpong_slice(void *state, long units, Slice *slice);
void pingpong_verify(void *state, Verified *verified);
void pingpong_release(void *state);

#endif
