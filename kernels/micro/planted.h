/* Planted extra work of kernels that repeat one unit of work: a round trip, a call, a step. */
#ifndef NEARMETAL_PLANTED_H
#define NEARMETAL_PLANTED_H

#include "world.h"

/* Extra work in a slice. units: number of extra units; wait: share of the slice's time for which each rank
   waits instead, if there would be too few extra units. */
typedef struct {
    long units;
    double wait;
} Planted;

/* Plan the extra work of a slice. If this is fewer than FEW units, each rank waits for this share of the time
   that its units took. Longer messages would be no substitute, since the time of large messages does not
   follow their size closely enough (over TCP, messages 3 % longer than a socket buffer took 20 % longer). */
static inline Planted plant(double share, long units, double *owed) {
    enum { FEW = 3 };
    double extra = share * (double)units;
    if (extra < FEW)
        return (Planted){.wait = share};
    return (Planted){.units = take_whole(owed, extra)};
}

/* Wait as planned, and return the seconds since `start`. spent: seconds that the units took. */
static inline double planted_end(Planted planted, double start, double spent) {
    double seconds = spent;
    while (seconds < (1 + planted.wait) * spent)
        seconds = now() - start;
    return seconds;
}

#endif
