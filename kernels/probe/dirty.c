/* nm-probe dirty --bytes N [--rate N]: writes one word to each page of its memory, page after page, at a rate
 * in bytes of pages per second (0: as fast as it can). Before it writes a page, it checks that the page holds
 * what the previous pass wrote. It ends with an error at the first page that does not.
 *
 * It prints {"dirtying": time} when all pages are mapped, and every PROGRESS_NS how many pages it has
 * written. On SIGTERM it checks all pages and prints {"pages": pages written, "passes": complete passes,
 * "wrong": pages with other contents}. */
#include "fail.h"
#include "probe.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, WORDS = PAGE / 8, STEP_NS = 1000000, LONGEST_NS = 10000000, PROGRESS_NS = 50000000 };

/* Return the word that pass `pass` writes to page `at`. It differs for all neighbouring pages and passes. */
static uint64_t word(uint64_t pass, uint64_t at) {
    uint64_t x = pass * 0x9e3779b97f4a7c15u + at + 1;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

static void rest(void) {
    const struct timespec step = {.tv_nsec = STEP_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &step, NULL);
}

int dirty_main(int argc, char **argv) {
    static const struct option options[] = {
        {"bytes", required_argument, NULL, 'b'}, {"rate", required_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
    int64_t bytes = 0, rate = 0;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        if (option == 'b')
            bytes = number(optarg, PAGE, INT64_MAX / 2, "--bytes");
        else if (option == 'r')
            rate = number(optarg, 0, INT64_MAX / 2, "--rate");
        else
            fail("dirty: unknown option");
    }
    const uint64_t pages = (uint64_t)bytes / PAGE;
    if (pages == 0)
        fail("dirty needs --bytes");
    uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory for %" PRIu64 " pages: %s", pages, strerror(errno));
    end_when_asked();
    for (uint64_t at = 0; at < pages; at++)
        memory[at * WORDS] = word(0, at);
    printf("{\"dirtying\": %" PRId64 "}\n", now_ns());
    fflush(stdout);
    uint64_t written = 0, wrong = 0;
    const double rate_of_pages = (double)rate * 1e-9 / PAGE; /* pages per nanosecond */
    /* At most the work of LONGEST_NS is due, so that a standstill is not caught up with by a burst. */
    const double most = rate_of_pages * LONGEST_NS > 1 ? rate_of_pages * LONGEST_NS : 1;
    double due = 0;
    int64_t told = now_ns(), clock = told;
    while (!asked_to_end() && wrong == 0) {
        if (rate > 0 || written % 256 == 0) {
            const int64_t now = now_ns();
            due += rate_of_pages * (double)(now - clock);
            due = due < most ? due : most;
            clock = now;
        }
        if (clock - told > PROGRESS_NS) {
            printf("{\"written\": %" PRIu64 "}\n", written);
            fflush(stdout);
            told = clock;
        }
        if (rate > 0) {
            if (due < 1) {
                rest();
                continue;
            }
            due--;
        }
        const uint64_t pass = written / pages, at = written % pages;
        volatile uint64_t *here = &memory[at * WORDS];
        wrong += *here != word(pass, at);
        *here = word(pass + 1, at);
        written++;
    }
    for (uint64_t at = 0; at < pages && wrong == 0; at++)
        wrong += memory[at * WORDS] != word(written / pages + (at < written % pages), at);
    printf("{\"pages\": %" PRIu64 ", \"passes\": %" PRIu64 ", \"wrong\": %" PRIu64 "}\n", written,
           written / pages, wrong);
    fflush(stdout);
    if (wrong > 0)
        fail("a page does not hold what was written to it");
    return 0;
}
