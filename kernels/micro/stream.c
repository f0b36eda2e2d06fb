/* STREAM (McCalpin 1995): sustained memory bandwidth of Copy, Scale, Add and Triad. Bytes are counted by its
 * rules. */
#include <stdlib.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "fail.h"
#include "kernel.h"

enum { COPY, SCALE, ADD, TRIAD, OPERATIONS };
enum { LINE = 8 }; /* elements of a cache line */

static const struct {
    const char *metric;
    int bytes; /* per element: every array read or written counts 8 */
} operations[OPERATIONS] = {{"copy", 16}, {"scale", 16}, {"add", 24}, {"triad", 24}};

typedef struct {
    World world;
    Common common;
    Arena arena;
    long elements;   /* of all ranks */
    int first, last; /* operations of a slice */
    long n, at;      /* elements of this rank, planted extra ones included; where the next slice begins */
    double owed;     /* elements of extra work not swept yet */
    bool fresh;      /* nothing ran since the arrays were filled */
    double *a, *b, *c;
} Stream;

/* One sweep of the four operations multiplies a by q^2 + 2q. For slices that is 1: values never grow, however
   many slices run. For the verification q = 3 is exact in binary: (1, 2, 0) becomes (15, 3, 4). */
static const double steady = 0.41421356237309515; /* sqrt(2) - 1 */
static const double exact = 3;

static __attribute__((noinline)) void copy(double *restrict c, const double *restrict a, long n) {
    /* hot loop: vectorised */
    for (long i = 0; i < n; i++)
        c[i] = a[i];
}

static __attribute__((noinline)) void scale(double *restrict b, const double *restrict c, double q, long n) {
    /* hot loop: vectorised */
    for (long i = 0; i < n; i++)
        b[i] = q * c[i];
}

static __attribute__((noinline)) void add(double *restrict c, const double *restrict a,
                                          const double *restrict b, long n) {
    /* hot loop: vectorised */
    for (long i = 0; i < n; i++)
        c[i] = a[i] + b[i];
}

static __attribute__((noinline)) void triad(double *restrict a, const double *restrict b,
                                            const double *restrict c, double q, long n) {
    /* hot loop: vectorised */
    for (long i = 0; i < n; i++)
        a[i] = b[i] + q * c[i];
}

static void apply(const Stream *s, int operation, double q, long begin, long count) {
    double *a = s->a + begin, *b = s->b + begin, *c = s->c + begin;
    switch (operation) {
    case COPY:
        copy(c, a, count);
        return;
    case SCALE:
        scale(b, c, q, count);
        return;
    case ADD:
        add(c, a, b, count);
        return;
    default:
        triad(a, b, c, q, count);
    }
}

/* Fill an array with stores that bypass the caches. This is faster, since the arrays are several times as
   large as the caches, and are filled in every launch. Arrays begin at cache lines. */
static void set(double *x, long n, double value) {
    long i = 0;
#ifdef __SSE2__
    for (; i + 2 <= n; i += 2)
        _mm_stream_pd(x + i, _mm_set1_pd(value));
    _mm_sfence();
#endif
    for (; i < n; i++)
        x[i] = value;
}

/* Read an array, so that it is in the caches if they can hold it. */
static void bring(const double *x, long n) {
    for (long i = 0; i < n; i += LINE)
        (void)((const volatile double *)x)[i];
}

static void fill(Stream *s) {
    set(s->a, s->n, 1);
    set(s->b, s->n, 2);
    set(s->c, s->n, 0);
    s->fresh = true;
}

static long local_elements(const Stream *s, int rank) {
    return share_begin(s->elements, rank + 1, s->world.size) - share_begin(s->elements, rank, s->world.size);
}

static void *prepare(Spec *spec, const World *world) {
    Stream *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_single(spec);
    s->elements = spec_integer(spec, "elements", 2000000, 1, 1L << 40);
    static const char *const only[] = {"all", "copy", "scale", "add", "triad"};
    size_t chosen = spec_choice(spec, "only", only, sizeof only / sizeof *only, 0);
    s->first = chosen ? (int)chosen - 1 : 0;
    s->last = chosen ? (int)chosen - 1 : OPERATIONS - 1;
    /* Extra work is done on longer arrays: repeated elements would be in a cache, unlike the others. */
    s->n = local_elements(s, world->rank);
    s->n += (long)(s->common.extra * (double)s->n);
    if (s->elements / world->size < OPERATIONS * LINE)
        fail("stream: %ld elements are too few for %d ranks", s->elements, world->size);
    size_t bytes = (size_t)s->n * sizeof(double);
    s->arena = arena_make(3 * arena_need(bytes), s->common.pages);
    s->a = arena_take(&s->arena, bytes);
    s->b = arena_take(&s->arena, bytes);
    s->c = arena_take(&s->arena, bytes);
    fill(s);
    return s;
}

/* Run one operation over `count` elements from `begin` on. At the end of the arrays it continues at their
 * beginning. */
static void sweep(const Stream *s, int operation, long begin, long count) {
    while (count > 0) {
        long part = count < s->n - begin ? count : s->n - begin;
        apply(s, operation, steady, begin, part);
        count -= part;
        begin = 0;
    }
}

static long whole_lines(double elements) {
    long lines = (long)(elements / LINE);
    return (lines > 0 ? lines : 1) * LINE;
}

/* Run a slice. A unit of work is one element, processed by each operation. If there are at least as many
   units as elements, whole arrays are swept. Otherwise a slice processes a part of the arrays, and the next
   slice the next part. The operations of such a slice work at distances of a quarter of the arrays: if all
   four worked on one part, three of them would find it in the cache. Each element is still processed in the
   published order. */
static void slice(void *state, long units, Slice *out) {
    Stream *s = state;
    bool whole = units >= s->elements;
    long rounds = whole ? units / s->elements : 1, share = units / s->world.size;
    long own = whole ? local_elements(s, s->world.rank) : whole_lines((double)share), part = s->n,
         begin[OPERATIONS] = {0};
    s->fresh = false;
    out->count = s->last - s->first + 1;
    if (whole) {
        /* Other instances have run since the last slice, and have replaced an unknown part of such small
           arrays in the cache. So the arrays are read first, untimed. */
        bring(s->a, s->n);
        bring(s->b, s->n);
        bring(s->c, s->n);
    } else {
        part = own + LINE * take_whole(&s->owed, s->common.extra * (double)own / LINE);
        for (int operation = 0; operation < OPERATIONS; operation++) {
            long behind = s->n / OPERATIONS / LINE * LINE * operation;
            begin[operation] = (s->at + s->n - behind) % s->n;
        }
    }
    for (int operation = s->first; operation <= s->last; operation++) {
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        double start = now();
        for (long round = 0; round < rounds; round++)
            sweep(s, operation, begin[operation], part);
        double nominal = whole ? (double)s->elements * (double)rounds : (double)own * s->world.size;
        out->part[operation - s->first] = (Part){
            .metric = operations[operation].metric,
            .seconds = now() - start,
            .work = (double)operations[operation].bytes * nominal,
        };
    }
    s->at = whole ? 0 : (s->at + part) % s->n;
}

static void verify(void *state, Verified *v) {
    Stream *s = state;
    if (!s->fresh)
        fill(s);
    s->fresh = false;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    long wrong = 0;
    enum { PART = 1 << 15 };
    for (long begin = 0; begin < s->n; begin += PART) {
        /* Verified in parts that stay in a cache, to save time. */
        long end = begin + PART < s->n ? begin + PART : s->n;
        double start = now();
        for (int operation = 0; operation < OPERATIONS; operation++)
            apply(s, operation, exact, begin, end - begin);
        v->seconds += now() - start;
        if (s->common.corrupt && s->world.rank == s->world.size - 1)
            s->b[begin] = -s->b[begin];
        for (long i = begin; i < end; i++)
            wrong += (s->a[i] != 15) | (s->b[i] != 3) | (s->c[i] != 4);
    }
    v->work = 80.0 * (double)s->elements;
    MPI(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong == 0;
    text_add(&v->expected, "\"a\":15,\"b\":3,\"c\":4,\"wrong_elements\":0");
    text_add(&v->found, "\"wrong_elements\":%ld,\"elements\":%ld", wrong, s->elements);
}

static void release(void *state) {
    Stream *s = state;
    arena_free(&s->arena);
    free(s);
}

static const Kernel stream_kernel = {"stream", prepare, slice, verify, release};
LISTED(stream_kernel)
