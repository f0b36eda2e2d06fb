/* Resources that a process used: counts that the kernel keeps of it, and hardware counters if available. */
#ifndef NEARMETAL_COUNTS_H
#define NEARMETAL_COUNTS_H

#include <sys/resource.h>

#include "text.h"

enum {
    TASK_CLOCK, /* seconds; the entries before RUN_DELAY are read by perf_event_open */
    CYCLES,
    INSTRUCTIONS,
    CACHE_MISSES,
    DTLB_MISSES,
    RUN_DELAY, /* seconds for which the first thread was ready to run but waited for a CPU */
    PAGE_FAULTS,
    MAJOR_FAULTS,
    SWITCHES,        /* voluntary context switches */
    SWITCHES_FORCED, /* involuntary context switches */
    COUNTS,
    EVENTS = RUN_DELAY,
};

/* Cumulative values; NAN if a value is not available. */
typedef struct {
    double value[COUNTS];
} Counts;

/* Start counting the perf events in a comma-separated list ("cycles,instructions"), for this process and for
   threads and children that it starts from now on. An event that the kernel refuses stays NAN. Only user mode
   is counted, since an unprivileged user may count nothing else. */
void counts_open(const char *names);

/* Add a JSON object: for each event the kernel's error message, or "" if the event is available. */
void counts_offered(Text *text);

/* Read the values of this process, over all its threads. */
void counts_self(Counts *counts);

/* Set the values of a child that has ended. The perf events are those of this process, which the child's were
   added to when it ended. usage: from wait4(); run_delay: from counts_run_delay(). */
void counts_child(Counts *counts, const struct rusage *usage, double run_delay);

/* Return the run delay of the first thread of a process in seconds; NAN if it cannot be read. The process may
   have ended, but must not have been reaped. process: 0 for this process. */
double counts_run_delay(int process);

/* Add "name":value,... with null for a value that is not available. */
void counts_json(Text *text, const Counts *counts);

#endif
