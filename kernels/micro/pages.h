/* Memory of a kernel: one arena with the requested kind of pages. */
#ifndef NEARMETAL_PAGES_H
#define NEARMETAL_PAGES_H

#include <stddef.h>

typedef enum { PAGES_HUGE, PAGES_SMALL } Pages;

typedef struct {
    char *mapping, *base;
    size_t mapped, size, used;
} Arena;

/* Return the bytes that an array of `bytes` needs in an arena. */
size_t arena_need(size_t bytes);

/* Return the distance in bytes between several arrays that are taken from the arena as one. They are close to
   each other, so that only the whole is rounded up to large pages. */
size_t arena_packed(size_t bytes);

/* Create an arena that is aligned to 2 MiB and filled with zeros. size: a sum of arena_need(). No page is
   mapped yet: `prepare` of the kernel must touch all that it uses, so that no page fault occurs in a slice.
 */
Arena arena_make(size_t size, Pages pages);

/* Touch every page of an arena. This is not for arrays that are filled anyway: a page that is filled directly
   after Linux has cleared it is written to memory only once. */
void arena_touch(const Arena *arena);

/* Take an array from the arena. It is aligned to a cache line. */
void *arena_take(Arena *arena, size_t bytes);

void arena_free(Arena *arena);

/* Return the kB of all arenas of this process. */
long arena_kb(void);

/* Return the kB in transparent huge pages of this process; -1 if Linux does not report them. */
long huge_kb(void);

#endif
