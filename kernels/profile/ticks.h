/* The clock that times MPI calls. It is the time stamp counter if that has the same constant rate on all CPUs
   (invariant TSC, CPUID 80000007h), since reading it takes only about 10 ns; otherwise CLOCK_MONOTONIC_RAW.
   Ticks are converted to seconds when the profile is written, by the duration of the whole run on both
   clocks, so the rate need not be measured beforehand. */
#ifndef NEARMETAL_TICKS_H
#define NEARMETAL_TICKS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

extern bool ticks_of_processor; /* set by ticks_choose() */

static inline uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return 1000000000u * (uint64_t)t.tv_sec + (uint64_t)t.tv_nsec;
}

static inline uint64_t ticks(void) {
#ifdef __x86_64__
    if (__builtin_expect(ticks_of_processor, 1))
        return __builtin_ia32_rdtsc();
#endif
    return nanoseconds();
}

static inline void ticks_choose(void) {
#ifdef __x86_64__
    unsigned a, b, c, d;
    ticks_of_processor = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#endif
}

#endif
