/* Seconds of CLOCK_MONOTONIC_RAW. NTP does not slew this clock, and all namespaces except time namespaces
 * share it. */
#ifndef NEARMETAL_CLOCK_H
#define NEARMETAL_CLOCK_H

#include <time.h>

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
