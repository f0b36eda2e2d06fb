#include "keep.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, STEPS_PER_PASS = 100, STEP_NS = 1000000, LONGEST_STEP_NS = 10000000 };

static uint64_t content(uint64_t page, uint64_t word, uint64_t times) {
    return (page * WORDS + word) * 0x9e3779b97f4a7c15u ^ times;
}

static void fill(const struct keeper *keeper, uint64_t page) {
    for (uint64_t word = 0; word < WORDS; word++)
        keeper->words[page * WORDS + word] = content(page, word, keeper->times[page]);
}

static void write_anew(const struct keeper *keeper, uint64_t page) {
    keeper->times[page]++;
    fill(keeper, page);
}

static uint64_t wrong_page(const struct keeper *keeper, uint64_t page) {
    for (uint64_t word = 0; word < WORDS; word++)
        if (keeper->words[page * WORDS + word] != content(page, word, keeper->times[page]))
            return 1;
    return 0;
}

uint64_t keep_now(void) {
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        fail("clock_gettime: %s", strerror(errno));
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t keep_number(const char *text) {
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        fail("%s is not a number", text);
    return value;
}

static void put(const struct keeper *keeper) {
    /* A copy is written, since GCC 12 with a sanitizer warns otherwise: it mistakes the address of the record
       for that of its first member. */
    const struct record record = keeper->record;
    if (pwrite(keeper->fd, &record, sizeof record, 0) != (ssize_t)sizeof record)
        fail("write %s: %s", keeper->path, strerror(errno));
}

static uint64_t *mapped(uint64_t bytes) {
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        fail("mmap %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    return made;
}

void keep_begin(struct keeper *keeper, uint64_t bytes, const char *path, uint64_t hot, uint64_t rate) {
    const uint64_t pages = bytes / PAGE;
    *keeper = (struct keeper){.path = path, .pages = pages, .all = hot == 0, .rate = rate};
    keeper->hot = keeper->all ? pages : hot / PAGE;
    if (pages == 0 || keeper->hot == 0 || keeper->hot > pages)
        fail("a page of memory at least is needed, and HOT within BYTES");
    keeper->share = (pages + STEPS_PER_PASS - 1) / STEPS_PER_PASS;
    keeper->words = mapped(pages * PAGE);
    keeper->times = mapped(pages * sizeof *keeper->times);
    for (uint64_t page = 0; page < pages; page++)
        fill(keeper, page);
    keeper->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (keeper->fd < 0)
        fail("open %s: %s", path, strerror(errno));
    put(keeper);
    keeper->last = keep_now();
}

void keep_memory(struct keeper *keeper) {
    const struct timespec pause = {.tv_nsec = STEP_NS};
    struct record *record = &keeper->record, found;
    nanosleep(&pause, NULL);
    for (uint64_t i = 0; i < keeper->share; i++) {
        record->wrong += wrong_page(keeper, keeper->at);
        if (keeper->all)
            write_anew(keeper, keeper->at);
        if (++keeper->at == keeper->pages) {
            keeper->at = 0;
            record->passes++;
        }
    }
    if (pread(keeper->fd, &found, sizeof found, 0) != (ssize_t)sizeof found || found.steps != record->steps)
        record->strange++;
    const uint64_t time = keep_now(), gap = time > keeper->last ? time - keeper->last : 0;
    if (record->passes > 0 && gap > record->gap)
        record->gap = gap;
    keeper->last = time;
    if (keeper->all)
        return;
    /* Pages that were not written during a standstill are not written later in a burst. */
    const double seconds = (double)(gap < LONGEST_STEP_NS ? gap : LONGEST_STEP_NS) * 1e-9;
    keeper->due += seconds * (double)keeper->rate / PAGE;
    for (; keeper->rate > 0 ? keeper->due >= 1 : keep_now() - time < STEP_NS; keeper->due--) {
        write_anew(keeper, keeper->next);
        keeper->next = keeper->next + 1 == keeper->hot ? 0 : keeper->next + 1;
    }
}

void keep_step(struct keeper *keeper) {
    keeper->record.steps++;
    put(keeper);
}
