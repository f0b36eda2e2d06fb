/* The kernel `dirty`, for studies of migration: writes to one page of 4 KiB after the other, cyclically, at a
   set rate or as fast as it can. Every page contains how often it was written. */
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"

enum { PAGE = 4096, WORDS = PAGE / 8, LINES = PAGE / 64 };

typedef struct {
    World world;
    Common common;
    Arena arena;
    bool whole;  /* every word of a page, or one */
    double rate; /* pages a second of this rank; 0 = no limit */
    /* Of this rank: */
    long pages;
    long next, rounds; /* page to write; times that all were written, which fixes what each page must hold */
    double owed;       /* pages of extra work not written yet */
    uint64_t *words;
} Dirty;

static long own_share(const World *world, long all) {
    return share_begin(all, world->rank + 1, world->size) - share_begin(all, world->rank, world->size);
}

static void *prepare(Spec *spec, const World *world) {
    Dirty *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    static const char *const amounts[] = {"word", "page"};
    s->world = *world;
    s->common = spec_single(spec);
    long pages = spec_integer(spec, "bytes", 64L << 20, PAGE, 1L << 42) / PAGE;
    s->whole = spec_choice(spec, "write", amounts, 2, 0) == 1;
    double rate = spec_real(spec, "rate", 0, 0, 1e15) / PAGE;
    if (pages < world->size)
        fail("dirty: %d ranks need a page each", world->size);
    s->pages = own_share(world, pages);
    s->rate = rate / world->size;
    size_t bytes = (size_t)s->pages * PAGE;
    s->arena = arena_make(arena_need(bytes), s->common.pages);
    s->words = arena_take(&s->arena, bytes);
    arena_touch(&s->arena);
    return s;
}

/* Return the index of the word of a page that is written. It is in a different cache line of each page, since
   words at the same offset would share one set of the cache. */
static long chosen(long page) {
    return page % LINES * (WORDS / LINES);
}

static void write_page(uint64_t *words, long page, bool whole) {
    words += page * WORDS;
    if (!whole)
        words[chosen(page)]++;
    else
        for (int i = 0; i < WORDS; i++)
            words[i]++;
}

/* Write pages as fast as possible. The loop goes from one end of the pages to the other, and keeps no counter
   in memory: with one, each write waited for the previous store of the counter, which took 1 ns in one run
   and 4 ns in another, depending on the counter's address. */
static void write_fast(Dirty *s, long count) {
    uint64_t *words = s->words;
    bool whole = s->whole;
    while (count > 0) {
        long page = s->next, end = page + count < s->pages ? page + count : s->pages;
        count -= end - page;
        s->next = end == s->pages ? 0 : end;
        s->rounds += end == s->pages;
        for (; page < end; page++)
            write_page(words, page, whole);
    }
}

/* Write pages at a rate. Page n is due at n / rate seconds after the start. After a delay, pages are written
   without waiting until the schedule is met again, so the rate does not drift. */
static void write_paced(Dirty *s, long count, double start) {
    for (long n = 1; n <= count; n++) {
        write_fast(s, 1);
        while (now() - start < (double)n / s->rate)
            ;
    }
}

/* Run a slice. A unit of work is one page on each rank. */
static void slice(void *state, long units, Slice *out) {
    Dirty *s = state;
    long count = units + take_whole(&s->owed, s->common.extra * (double)units);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    if (s->rate > 0)
        write_paced(s, count, start);
    else
        write_fast(s, count);
    out->count = 1;
    out->part[0] = (Part){.metric = "bytes",
                          .seconds = now() - start,
                          .work = (double)PAGE * (double)units * (double)s->world.size};
}

static long wrong_words(const Dirty *s) {
    long wrong = 0;
    for (long page = 0; page < s->pages; page++) {
        const uint64_t *words = s->words + page * WORDS;
        uint64_t times = (uint64_t)(s->rounds + (page < s->next));
        for (long i = 0; i < WORDS; i++)
            wrong += words[i] != (s->whole || i == chosen(page) ? times : 0);
    }
    return wrong;
}

/* Write all pages once, as fast as possible, since a low rate would take hours; then check them. */
static void verify(void *state, Verified *v) {
    Dirty *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    write_fast(s, s->pages);
    v->seconds = now() - start;
    long sums[2] = {0, s->pages}; /* wrong words, pages of all ranks */
    uint64_t spoiled = s->common.corrupt && s->world.rank == s->world.size - 1;
    s->words[s->pages / 2 * WORDS] += spoiled;
    sums[0] = wrong_words(s);
    s->words[s->pages / 2 * WORDS] -= spoiled;
    MPI(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->work = (double)PAGE * (double)sums[1];
    v->ok = sums[0] == 0;
    text_add(&v->expected, "\"wrong_words\":0");
    text_add(&v->found, "\"wrong_words\":%ld,\"pages\":%ld", sums[0], sums[1]);
}

static void release(void *state) {
    Dirty *s = state;
    arena_free(&s->arena);
    free(s);
}

static const Kernel dirty_kernel = {"dirty", prepare, slice, verify, release};
LISTED(dirty_kernel)
