/* nm-keeper BYTES RECORD [HOT RATE [RANK PORT ADDRESS ADDRESS...]]: a program that verifies whether it
 * continues unchanged after its instance has been checkpointed and restored, or moved. It holds BYTES of
 * memory with known contents. In every step, one per millisecond, it verifies some pages and overwrites
 * RECORD (keep.h). It writes every page anew after verifying it. With HOT and RATE it writes only to the
 * first HOT bytes, page after page, at RATE bytes of pages per second (0: as fast as it can).
 *
 * With RANK it is one rank of a job, whose ranks have these addresses. In every step it sends a message to
 * the next rank by TCP, and verifies the message of the previous rank. Every TELL_NS it prints how many steps
 * it has taken. On SIGTERM it prints its record as JSON, with the time of its first step (CLOCK_MONOTONIC in
 * nanoseconds), and then the times between steps in microseconds. */
#include "fail.h"
#include "keep.h"
#include "ring.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ALONE = 3, WRITES = 5, JOINS = 8, MORE = 4096, A_LINE = 16, TELL_NS = 100000000 };

static uint64_t monotonic(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void print(const struct record *record, const uint64_t *ends, size_t count) {
    printf("{\"steps\": %" PRIu64 ", \"passes\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"strange\": %" PRIu64
           ", \"first\": %" PRIu64 "}\n",
           record->steps, record->passes, record->wrong, record->strange, count > 0 ? ends[0] : 0);
    for (size_t i = 1; i < count; i++)
        printf("%" PRIu64 "%c", ends[i] / 1000 - ends[i - 1] / 1000, i % A_LINE == 0 ? '\n' : ' ');
    printf("\n");
    fflush(stdout);
}

static void run_rank(struct keeper *keeper, int argc, char **argv) {
    struct ring ring;
    uint64_t *ends = NULL;
    size_t count = 0;
    uint64_t told = 0;
    ring_join(&ring, keep_number(argv[WRITES]), (int)keep_number(argv[WRITES + 1]), argv + WRITES + 2,
              (uint64_t)(argc - WRITES - 2));
    printf("{\"joined\": %" PRIu64 "}\n", monotonic());
    fflush(stdout);
    for (;;) {
        keep_memory(keeper);
        if (!ring_exchange(&ring, keeper->record.steps))
            break;
        if (count % MORE == 0 && (ends = realloc(ends, (count + MORE) * sizeof *ends)) == NULL)
            fail("no memory for the times of %zu steps", count);
        ends[count++] = monotonic();
        keep_step(keeper);
        if (ends[count - 1] > told + TELL_NS) {
            told = ends[count - 1];
            printf("{\"step\": %zu}\n", count);
            fflush(stdout);
        }
    }
    print(&keeper->record, ends, count);
    free(ends);
}

int main(int argc, char **argv) {
    if (argc != ALONE && argc != WRITES && argc <= JOINS)
        fail("usage: nm-keeper BYTES RECORD [HOT RATE [RANK PORT ADDRESS ADDRESS...]]");
    struct keeper keeper;
    const uint64_t hot = argc > ALONE ? keep_number(argv[3]) : 0;
    const uint64_t rate = argc > ALONE ? keep_number(argv[4]) : 0;
    if (argc > ALONE && hot == 0)
        fail("HOT is a page at least");
    keep_begin(&keeper, keep_number(argv[1]), argv[2], hot, rate);
    if (argc > WRITES) {
        run_rank(&keeper, argc, argv);
        return 0;
    }
    for (;;) {
        keep_memory(&keeper);
        keep_step(&keeper);
    }
}
