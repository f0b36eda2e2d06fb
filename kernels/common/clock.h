/* Seconds of CLOCK_MONOTONIC_RAW: not slewed by NTP, the same clock in every namespace but time. */
#ifndef NEARMETAL_CLOCK_H
#define NEARMETAL_CLOCK_H

#include <time.h>

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
