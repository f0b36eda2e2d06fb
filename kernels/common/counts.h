/* What a program used: its own accounts with the kernel, and hardware counters where the kernel gives any. */
#ifndef NEARMETAL_COUNTS_H
#define NEARMETAL_COUNTS_H

#include <sys/resource.h>

#include "text.h"

enum {
    TASK_CLOCK, /* seconds; this and what follows up to RUN_DELAY by perf_event_open */
    CYCLES,
    INSTRUCTIONS,
    CACHE_MISSES,
    DTLB_MISSES,
    RUN_DELAY, /* seconds that the first thread was ready to run and did not */
    PAGE_FAULTS,
    MAJOR_FAULTS,
    SWITCHES,        /* of its own accord */
    SWITCHES_FORCED, /* others took the CPU */
    COUNTS,
    EVENTS = RUN_DELAY,
};

/* NAN: absent. Cumulative. */
typedef struct {
    double value[COUNTS];
} Counts;

/* Opens the events named in a list divided by commas ("cycles,instructions"), of this process and of the
   threads and children that it starts from now on; what the kernel does not give stays absent. User mode
   alone is counted, for an ordinary user may count no more. */
void counts_open(const char *names);

/* What the kernel says to each event here, as a JSON object: "" where it gives it. */
void counts_offered(Text *text);

/* Of this process, all threads. */
void counts_self(Counts *counts);

/* Of a child that has ended: its events came to this process with its end. */
void counts_child(Counts *counts, const struct rusage *usage, double run_delay);

/* Run delay of the first thread of a process, which may have ended unless it was waited for; NAN where it
   cannot be read. 0: this process. */
double counts_run_delay(int process);

/* "name":value,...; null where absent. */
void counts_json(Text *text, const Counts *counts);

#endif
