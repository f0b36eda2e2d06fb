/* What a program does that verifies that it goes on as it was: its memory, and the record of its progress. */
#ifndef NM_KEEP_H
#define NM_KEEP_H

#include <stdint.h>

/* record: steps, passes over the whole memory, wrong pages, the longest time between two steps in
 * nanoseconds, and how often the file was not what the program had written. */
struct record {
    uint64_t steps, passes, wrong, gap, strange;
};

struct keeper {
    struct record record;
    const char *path;
    int fd, all;
    uint64_t *words, *times, pages; /* the memory, and how often each page has been written */
    uint64_t hot, rate;             /* pages; bytes of pages per second */
    uint64_t at, next, share, last;
    double due; /* pages to be written */
};

/* A number, or fail(). */
uint64_t keep_number(const char *text);
/* CLOCK_REALTIME in nanoseconds: a checkpoint hides its pause from other clocks. */
uint64_t keep_now(void);
/* Hold `bytes` of memory with known contents, and write the first record to `path`. hot, rate: write to so
 * many bytes only, at this rate in bytes per second (0: as fast as it can); hot 0: write each page that has
 * been verified anew. */
void keep_begin(struct keeper *keeper, uint64_t bytes, const char *path, uint64_t hot, uint64_t rate);
/* Wait a millisecond, verify a share of the memory, look at the record, and write pages. */
void keep_memory(struct keeper *keeper);
/* Note a step in the record. */
void keep_step(struct keeper *keeper);

#endif
