/* The memory and the progress record of a program that verifies whether it continues unchanged after a
 * checkpoint, a restore or a move. */
#ifndef NM_KEEP_H
#define NM_KEEP_H

#include <stdint.h>

/* The record, as it is in the file. steps: number of steps; passes: how often the whole memory was verified;
 * wrong: pages with wrong contents; gap: longest time between two steps in nanoseconds, after the first pass,
 * in which the processes of a job wait for each other to start; strange: how often the file was not what the
 * program had written. */
struct record {
    uint64_t steps, passes, wrong, gap, strange;
};

struct keeper {
    struct record record;
    const char *path;
    int fd, all;
    uint64_t *words, *times, pages; /* the memory; how often each page has been written; number of pages */
    uint64_t hot, rate;             /* number of pages to write to; bytes of pages per second */
    uint64_t at, next, share, last;
    double due; /* pages to be written now */
};

/* Return the text as a number, or fail(). */
uint64_t keep_number(const char *text);
/* Return CLOCK_REALTIME in nanoseconds. Other clocks do not show the pause of a checkpoint. */
uint64_t keep_now(void);
/* Fill `bytes` of memory with known contents, and write the first record to `path`. hot: number of bytes that
 * are written to, at `rate` bytes of pages per second (0: as fast as possible); if hot is 0, every page is
 * written anew after it has been verified. */
void keep_begin(struct keeper *keeper, uint64_t bytes, const char *path, uint64_t hot, uint64_t rate);
/* Sleep for a millisecond, verify a part of the memory, check the record in the file, and write pages. */
void keep_memory(struct keeper *keeper);
/* Count a step, and write the record. */
void keep_step(struct keeper *keeper);

#endif
