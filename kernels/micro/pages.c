/* Memory of a kernel: one arena with the requested kind of pages. */
#include "pages.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fail.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)0)
#endif

enum { LINE = 64, PAGE = 4096, GAP = 1024 + 2 * LINE };
static const size_t HUGE = (size_t)2 << 20;

static size_t all_arenas; /* bytes */

static size_t round_up(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

/* The arrays of an arena begin at 0, GAP, 2 GAP, ... after a multiple of 4 KiB (large arrays: of 2 MiB),
   independently of their sizes. At equal offsets, a load would wait for an unrelated store. At offsets that
   depend on the sizes, arrays with 3 % more elements could be 1 % faster per element. Sanitizers find
   overruns in the gaps. */
size_t arena_need(size_t bytes) {
    return round_up(bytes, bytes < HUGE ? PAGE : HUGE) + GAP;
}

size_t arena_packed(size_t bytes) {
    return round_up(bytes, PAGE) + GAP;
}

Arena arena_make(size_t size, Pages pages) {
    Arena arena = {.size = round_up(size, HUGE)};
    arena.mapped = arena.size + HUGE;
    arena.mapping = mmap(NULL, arena.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena.mapping == MAP_FAILED)
        fail("no memory for %zu bytes: %s", arena.mapped, strerror(errno));
    arena.base = (char *)round_up((uintptr_t)arena.mapping, HUGE);
    /* Without transparent huge pages Linux returns EINVAL. This is ignored, since the pages that were really
       used are reported. */
    (void)madvise(arena.base, arena.size, pages == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    all_arenas += arena.size;
    ASAN_POISON_MEMORY_REGION(arena.base, arena.size);
    return arena;
}

/* Page starts may lie in the gaps that sanitizers watch. */
__attribute__((no_sanitize("address"))) void arena_touch(const Arena *arena) {
    for (size_t at = 0; at < arena->used; at += PAGE)
        *(volatile char *)(arena->base + at) = *(volatile char *)(arena->base + at);
}

void *arena_take(Arena *arena, size_t bytes) {
    if (arena->used + arena_need(bytes) > arena->size)
        fail("an arena of %zu bytes cannot hold %zu more", arena->size, bytes);
    char *start = arena->base + arena->used;
    arena->used += arena_need(bytes);
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    return start;
}

void arena_free(Arena *arena) {
    ASAN_UNPOISON_MEMORY_REGION(arena->base, arena->size);
    all_arenas -= arena->size;
    munmap(arena->mapping, arena->mapped);
    *arena = (Arena){0};
}

long arena_kb(void) {
    return (long)(all_arenas / 1024);
}

long huge_kb(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (!file)
        return -1;
    char line[256];
    long kb = -1;
    while (kb < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %ld kB", &kb) != 1)
            kb = -1;
    fclose(file);
    return kb;
}
