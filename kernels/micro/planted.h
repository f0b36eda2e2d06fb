/* Planted extra work of kernels that repeat one unit: a trip, a call, a step. */
#ifndef NEARMETAL_PLANTED_H
#define NEARMETAL_PLANTED_H

#include "world.h"

/* units: more of them in this slice; wait: share of the time spent that is waited instead. */
typedef struct {
    long units;
    double wait;
} Planted;

/* Where a slice holds too few units for whole ones, each rank waits that share of the time that its units
   took: the time of large messages does not follow their size closely enough to plant 3 % by longer ones
   (over TCP 3 % more bytes than a socket buffer took 20 % longer). */
static inline Planted plant(double share, long units, double *owed) {
    enum { FEW = 3 };
    double extra = share * (double)units;
    if (extra < FEW)
        return (Planted){.wait = share};
    return (Planted){.units = take_whole(owed, extra)};
}

/* Seconds since `start`, of which the units took `spent`, once the wait is over. */
static inline double planted_end(Planted planted, double start, double spent) {
    double seconds = spent;
    while (seconds < (1 + planted.wait) * spent)
        seconds = now() - start;
    return seconds;
}

#endif
