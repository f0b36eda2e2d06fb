/* Code that all kernels share: the ranks, MPI calls that are checked and timed, and the division of work. */
#ifndef NEARMETAL_WORLD_H
#define NEARMETAL_WORLD_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

/* seed: for random numbers; interface: network interface to which sockets other than MPI's bind. */
typedef struct {
    int rank, size;
    uint64_t seed;
    const char *interface;
} World;

/* Fail with MPI's error message unless code is MPI_SUCCESS. call: text of the call, for the message. */
void mpi_check(int code, const char *call);

#define MPI(call) mpi_check((call), #call)

/* A checked MPI call, whose duration is added to `seconds`. */
#define MPI_TIMED(seconds, call)                                                                             \
    do {                                                                                                     \
        double mpi_timed_begin = now();                                                                      \
        MPI(call);                                                                                           \
        (seconds) += now() - mpi_timed_begin;                                                                \
    } while (0)

static inline bool power_of_two(int n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* Divide n things into `parts` shares of nearly equal size. Return the index of the first thing of share
   `part`. The share ends where the next one begins. */
static inline long share_begin(long n, long part, long parts) {
    return n / parts * part + (part < n % parts ? part : n % parts);
}

/* Return the whole units in `amount` and what was left over from earlier calls; the fraction is kept in *owed
   for the next call. The small allowance makes 20000 x 0.03 count as 600. */
static inline long take_whole(double *owed, double amount) {
    *owed += amount;
    long whole = (long)(*owed + 1e-9);
    *owed -= (double)whole;
    return whole;
}

#endif
