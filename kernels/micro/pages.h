/* Memory of a kernel: one arena of the page size asked for. */
#ifndef NEARMETAL_PAGES_H
#define NEARMETAL_PAGES_H

#include <stddef.h>

typedef enum { PAGES_HUGE, PAGES_SMALL } Pages;

typedef struct {
    char *mapping, *base;
    size_t mapped, size, used;
} Arena;

/* Bytes that `bytes` take up in an arena. */
size_t arena_need(size_t bytes);

/* Bytes from one array to the next where several are taken as one: close to each other, so that only the
   whole is rounded up to large pages. */
size_t arena_packed(size_t bytes);

/* `size` is a sum of arena_need(). Aligned to 2 MiB, zero. No page is present yet: the kernel touches all it
   will use in prepare, so that none is faulted in inside a slice. */
Arena arena_make(size_t size, Pages pages);

/* Every page present. Not for what is filled anyway: a page that is cleared and filled in one go is written
   to memory once. */
void arena_touch(const Arena *arena);

/* Aligned to a cache line. */
void *arena_take(Arena *arena, size_t bytes);

void arena_free(Arena *arena);

/* kB in all arenas of this process. */
long arena_kb(void);

/* kB in transparent huge pages in this process now; -1 where the kernel does not tell. */
long huge_kb(void);

#endif
