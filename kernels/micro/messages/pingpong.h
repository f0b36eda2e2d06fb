/* Ping-pong over different carriers: MPI, TCP, UDP. They share the code for round trips, planted work,
   verification and timing, so that a layer can be compared with the layer below it. */
#ifndef NEARMETAL_PINGPONG_H
#define NEARMETAL_PINGPONG_H

#include "kernel.h"

typedef struct Pingpong Pingpong;

/* A carrier of messages between ranks 0 and 1. Only these ranks call send, receive and settle. travel:
   pingpong_travel with this carrier's send and receive; receive: returns false if the message is lost, which
   ends the slice or the verification; settle: discards messages that came too late, called before each slice
   and verification; close: called by every rank. */
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

/* Make round trips. Return whether every message arrived; on rank 0 this covers both directions, since a lost
   message has no answer. Inline, so that each carrier's functions are called directly: calls through pointers
   cost 1 % of an MPI message through shared memory. */
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
