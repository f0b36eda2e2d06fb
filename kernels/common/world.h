/* What every kernel shares: the ranks, checked MPI calls, the time spent in them, planted extra work. */
#ifndef NEARMETAL_WORLD_H
#define NEARMETAL_WORLD_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

/* interface: network interface that sockets beside MPI bind to. */
typedef struct {
    int rank, size;
    uint64_t seed;
    const char *interface;
} World;

/* Fails with MPI's own words unless code is MPI_SUCCESS. */
void mpi_check(int code, const char *call);

#define MPI(call) mpi_check((call), #call)

/* An MPI call inside a timed part: its seconds are added to `seconds`. */
#define MPI_TIMED(seconds, call)                                                                             \
    do {                                                                                                     \
        double mpi_timed_begin = now();                                                                      \
        MPI(call);                                                                                           \
        (seconds) += now() - mpi_timed_begin;                                                                \
    } while (0)

static inline bool power_of_two(int n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* Share `part` of `parts` of n things: where it begins. It ends where the next begins. */
static inline long share_begin(long n, long part, long parts) {
    return n / parts * part + (part < n % parts ? part : n % parts);
}

/* Whole units out of `amount`; the fraction is kept in *owed for the next time. The small allowance keeps
   20000 x 0.03 at 600. */
static inline long take_whole(double *owed, double amount) {
    *owed += amount;
    long whole = (long)(*owed + 1e-9);
    *owed -= (double)whole;
    return whole;
}

#endif
