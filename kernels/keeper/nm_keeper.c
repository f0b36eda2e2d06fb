/* nm-keeper BYTES RECORD: a program that knows whether it goes on as it was after its instance has been
 * checkpointed and restored. It holds BYTES of memory with known contents. In every step, one a millisecond,
 * it verifies some pages, writes them anew, and overwrites RECORD: steps, passes over the whole memory, wrong
 * pages, the longest time between two steps in nanoseconds, and how often RECORD was not what it had written,
 * because a second copy runs. Times are of CLOCK_REALTIME: a checkpoint hides its pause from other clocks. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

enum { PAGE = 4096, WORDS = PAGE / 8, STEPS_PER_PASS = 100, STEP_NS = 1000000 };

struct record {
    uint64_t steps, passes, wrong, gap, strange;
};

static uint64_t content(uint64_t page, uint64_t word, uint64_t pass) {
    return (page * WORDS + word) * 0x9e3779b97f4a7c15u ^ pass;
}

static void fill(uint64_t *memory, uint64_t page, uint64_t pass) {
    for (uint64_t word = 0; word < WORDS; word++)
        memory[page * WORDS + word] = content(page, word, pass);
}

static uint64_t wrong_page(const uint64_t *memory, uint64_t page, uint64_t pass) {
    for (uint64_t word = 0; word < WORDS; word++)
        if (memory[page * WORDS + word] != content(page, word, pass))
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

int main(int argc, char **argv) {
    char *end = NULL;
    uint64_t bytes = argc == 3 ? strtoull(argv[1], &end, 10) : 0, pages = bytes / PAGE;
    if (pages == 0 || *end != '\0')
        fail("usage: nm-keeper BYTES RECORD");
    uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap %s bytes: %s", argv[1], strerror(errno));
    for (uint64_t page = 0; page < pages; page++)
        fill(memory, page, 0);
    int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("open %s: %s", argv[2], strerror(errno));
    struct record record = {0, 0, 0, 0, 0}, found;
    put(fd, &record, argv[2]);
    const struct timespec pause = {.tv_nsec = STEP_NS};
    uint64_t at = 0, share = (pages + STEPS_PER_PASS - 1) / STEPS_PER_PASS;
    for (uint64_t last = now();;) {
        nanosleep(&pause, NULL);
        for (uint64_t i = 0; i < share; i++) {
            record.wrong += wrong_page(memory, at, record.passes);
            fill(memory, at, record.passes + 1);
            if (++at == pages) {
                at = 0;
                record.passes++;
            }
        }
        if (pread(fd, &found, sizeof found, 0) != (ssize_t)sizeof found || found.steps != record.steps)
            record.strange++;
        uint64_t time = now();
        if (time > last && time - last > record.gap)
            record.gap = time - last;
        last = time;
        record.steps++;
        put(fd, &record, argv[2]);
    }
}
