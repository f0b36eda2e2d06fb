/* nm-keeper BYTES RECORD [HOT RATE]: a program that knows whether it goes on as it was after its instance
 * has been checkpointed and restored. It holds BYTES of memory with known contents. In every step, one a
 * millisecond, it verifies some pages and overwrites RECORD: steps, passes over the whole memory, wrong
 * pages, the longest time between two steps in nanoseconds, and how often RECORD was not what it had
 * written, because a second copy runs. It writes every page that it has verified anew; with HOT and RATE it
 * writes to the first HOT bytes only, page after page, RATE bytes of pages per second (0: as fast as it can).
 * Times are of CLOCK_REALTIME: a checkpoint hides its pause from other clocks. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

enum { PAGE = 4096, WORDS = PAGE / 8, STEPS_PER_PASS = 100, STEP_NS = 1000000, LONGEST_STEP_NS = 10000000 };

struct record {
    uint64_t steps, passes, wrong, gap, strange;
};

/* The memory, and how often each page has been written. */
struct memory {
    uint64_t *words, *times, pages;
};

static uint64_t content(uint64_t page, uint64_t word, uint64_t times) {
    return (page * WORDS + word) * 0x9e3779b97f4a7c15u ^ times;
}

static void fill(const struct memory *memory, uint64_t page) {
    for (uint64_t word = 0; word < WORDS; word++)
        memory->words[page * WORDS + word] = content(page, word, memory->times[page]);
}

static void write_anew(const struct memory *memory, uint64_t page) {
    memory->times[page]++;
    fill(memory, page);
}

static uint64_t wrong_page(const struct memory *memory, uint64_t page) {
    for (uint64_t word = 0; word < WORDS; word++)
        if (memory->words[page * WORDS + word] != content(page, word, memory->times[page]))
            return 1;
    return 0;
}

static uint64_t now(void) {
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        fail("clock_gettime: %s", strerror(errno));
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void put(int fd, const struct record *record, const char *path) {
    if (pwrite(fd, record, sizeof *record, 0) != (ssize_t)sizeof *record)
        fail("write %s: %s", path, strerror(errno));
}

static uint64_t *mapped(uint64_t bytes) {
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        fail("mmap %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    return made;
}

static uint64_t number(const char *text) {
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        fail("%s is not a number", text);
    return value;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 5)
        fail("usage: nm-keeper BYTES RECORD [HOT RATE]");
    struct memory memory = {NULL, NULL, number(argv[1]) / PAGE};
    const int all = argc == 3;
    const uint64_t hot = all ? memory.pages : number(argv[3]) / PAGE, rate = all ? 0 : number(argv[4]);
    if (memory.pages == 0 || hot == 0 || hot > memory.pages)
        fail("nm-keeper needs a page at least, and HOT within BYTES");
    memory.words = mapped(memory.pages * PAGE);
    memory.times = mapped(memory.pages * sizeof *memory.times);
    for (uint64_t page = 0; page < memory.pages; page++)
        fill(&memory, page);
    int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("open %s: %s", argv[2], strerror(errno));
    struct record record = {0, 0, 0, 0, 0}, found;
    put(fd, &record, argv[2]);
    const struct timespec pause = {.tv_nsec = STEP_NS};
    uint64_t at = 0, next = 0, share = (memory.pages + STEPS_PER_PASS - 1) / STEPS_PER_PASS;
    double due = 0; /* pages to be written */
    for (uint64_t last = now();;) {
        nanosleep(&pause, NULL);
        for (uint64_t i = 0; i < share; i++) {
            record.wrong += wrong_page(&memory, at);
            if (all)
                write_anew(&memory, at);
            if (++at == memory.pages) {
                at = 0;
                record.passes++;
            }
        }
        if (pread(fd, &found, sizeof found, 0) != (ssize_t)sizeof found || found.steps != record.steps)
            record.strange++;
        uint64_t time = now(), gap = time > last ? time - last : 0;
        if (gap > record.gap)
            record.gap = gap;
        last = time;
        /* A standstill is not caught up with by a burst. */
        due += (double)(gap < LONGEST_STEP_NS ? gap : LONGEST_STEP_NS) * 1e-9 * (double)rate / PAGE;
        for (; !all && (rate > 0 ? due >= 1 : now() - time < STEP_NS); due--) {
            write_anew(&memory, next);
            next = next + 1 == hot ? 0 : next + 1;
        }
        record.steps++;
        put(fd, &record, argv[2]);
    }
}
