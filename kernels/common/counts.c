#include "counts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[COUNTS] = {"task_clock",  "cycles",         "instructions", "cache_misses",
                                          "dtlb_misses", "run_delay",      "page_faults",  "major_faults",
                                          "switches",    "switches_forced"};

static const struct {
    uint32_t type;
    uint64_t config;
    double unit;
} events[EVENTS] = {
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1e-9},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 1},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 1},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, 1},
    {PERF_TYPE_HW_CACHE,
     PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16, 1},
};
static int descriptors[EVENTS] = {-1, -1, -1, -1, -1};

static int listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (!at[length] || at[length] == ','))
            return 1;
    return 0;
}

static int open_event(int e) {
    struct perf_event_attr attributes = {
        .size = sizeof attributes,
        .type = events[e].type,
        .config = events[e].config,
        .inherit = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        /* If there are more events than hardware counters, the kernel multiplexes them. The times tell for
           which share of the run an event was counted, by which read_events() scales it. */
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void counts_open(const char *list) {
    for (int e = 0; e < EVENTS; e++)
        if (descriptors[e] < 0 && listed(list, names[e]))
            descriptors[e] = open_event(e);
}

void counts_offered(Text *text) {
    text_add(text, "{");
    for (int e = 0; e < EVENTS; e++) {
        int descriptor = open_event(e);
        text_add(text, "%s\"%s\":", e ? "," : "", names[e]);
        json_string(text, descriptor < 0 ? strerror(errno) : "");
        if (descriptor >= 0)
            close(descriptor);
    }
    text_add(text, "}\n");
}

static void read_events(Counts *counts) {
    for (int e = 0; e < EVENTS; e++) {
        struct {
            uint64_t value, enabled, running;
        } got;
        counts->value[e] = NAN;
        if (descriptors[e] >= 0 && read(descriptors[e], &got, sizeof got) == (ssize_t)sizeof got &&
            got.running)
            counts->value[e] =
                (double)got.value * events[e].unit * ((double)got.enabled / (double)got.running);
    }
}

double counts_run_delay(int process) {
    char path[64], text[128];
    if (process)
        snprintf(path, sizeof path, "/proc/%d/schedstat", process);
    else
        snprintf(path, sizeof path, "/proc/self/schedstat");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NAN;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    double ran, waited;
    text[size > 0 ? size : 0] = 0;
    return sscanf(text, "%lf %lf", &ran, &waited) == 2 ? 1e-9 * waited : NAN;
}

static void add_usage(Counts *counts, const struct rusage *usage) {
    counts->value[PAGE_FAULTS] = (double)usage->ru_minflt;
    counts->value[MAJOR_FAULTS] = (double)usage->ru_majflt;
    counts->value[SWITCHES] = (double)usage->ru_nvcsw;
    counts->value[SWITCHES_FORCED] = (double)usage->ru_nivcsw;
}

void counts_self(Counts *counts) {
    struct rusage usage;
    read_events(counts);
    counts->value[RUN_DELAY] = counts_run_delay(0);
    getrusage(RUSAGE_SELF, &usage);
    add_usage(counts, &usage);
}

void counts_child(Counts *counts, const struct rusage *usage, double run_delay) {
    read_events(counts);
    counts->value[RUN_DELAY] = run_delay;
    add_usage(counts, usage);
}

void counts_json(Text *text, const Counts *counts) {
    for (int c = 0; c < COUNTS; c++) {
        text_add(text, "%s\"%s\":", c ? "," : "", names[c]);
        json_number(text, counts->value[c]);
    }
}
