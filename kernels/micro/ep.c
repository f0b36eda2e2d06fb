/* EP (RNR-94-007): pairs of Gaussian deviates by the polar method, tallied in square annuli. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "kernel.h"
#include "random.h"

enum { LOG_BLOCK = 10, BLOCK = 1 << LOG_BLOCK, LANES = 16, ANNULI = 10, PLACES = 16, LINE = 64 };
static const uint64_t seed = 271828183;

static const char *const class_names[] = {"S", "W", "A", "B", "C"};
enum { CLASSES = sizeof class_names / sizeof *class_names };
static const struct {
    int m; /* 2^m pairs */
    double sx, sy;
} classes[CLASSES] = {
    {24, -3247.83465203474, -6958.407078382297},  {25, -2863.319731645753, -6320.053679109499},
    {28, -4295.875165629892, -15807.32573678431}, {30, 40338.15542441498, -26606.69192809235},
    {32, 47643.67927995374, -80840.72988043731},
};
static const double tolerance = 1e-8;

typedef struct {
    double sum[2]; /* of the first and second deviates */
    long pairs, annulus[ANNULI];
} Tally;

/* The buffers of one thread, and its tallies since they were last taken. */
typedef struct {
    _Alignas(LINE) double x[BLOCK], y[BLOCK]; /* uniform deviates */
    uint32_t ring[BLOCK];                     /* annulus numbers */
    Tally tally;
} Worker;

typedef struct {
    World world;
    Common common;
    size_t class;
    long all_blocks, next; /* next: first block of the next slice */
    double owed;           /* blocks of extra work not done yet */
    uint64_t stride;       /* factor of 2 * LANES steps */
    Worker *worker;        /* PLACES of each thread */
    int place;             /* in which the next slice computes */
} Ep;

/* x <- a^(2 LANES) x in LANES independent streams for each half of the pairs: no lane waits for another. */
typedef struct {
    uint64_t x[LANES], y[LANES];
} Lanes;

static void lanes_start(Lanes *lanes, long block) {
    uint64_t state = random_jump(seed, (uint64_t)block * 2 * BLOCK);
    for (int lane = 0; lane < LANES; lane++) {
        lanes->x[lane] = state = random_step(state, random_factor);
        lanes->y[lane] = state = random_step(state, random_factor);
    }
}

static void uniform(Lanes *lanes, uint64_t stride, double *restrict x, double *restrict y) {
    Lanes at = *lanes;
    for (int i = 0; i < BLOCK; i += LANES)
        /* hot loop: vectorised */
        for (int lane = 0; lane < LANES; lane++) {
            x[i + lane] = 2 * random_unit(at.x[lane]) - 1;
            y[i + lane] = 2 * random_unit(at.y[lane]) - 1;
            at.x[lane] = random_step(at.x[lane], stride);
            at.y[lane] = random_step(at.y[lane], stride);
        }
    *lanes = at;
}

/* Natural logarithm of a positive normal number, to 2e-16: t = 2^e m with m in [sqrt 1/2, sqrt 2), then
   ln m = 2 artanh s, s = (m-1)/(m+1), |s| < 0.172, by its series. In plain operations, so that compilers
   vectorise it without a vector mathematics library. */
static inline double natural_log(double t) {
    const uint64_t root_half = UINT64_C(0x3fe6a09e667f3bcd), bias = UINT64_C(1024) << 52;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = bits - root_half + bias;
    double e = random_real(bits >> 52) - 1024;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) + root_half;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s;
    double sum = 1.0 / 21;
    sum = sum * z + 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    return e * 0.69314718055994531 + (2 * s + 2 * s * z * sum);
}

/* A rejected pair (t > 1) is computed as t = 1, where the deviates are 0: no branch, nothing added. */
static void gaussian(const double *restrict x, const double *restrict y, uint32_t *restrict ring,
                     Tally *tally) {
    double sx = 0, sy = 0;
    long pairs = 0;
    /* hot loop: vectorised */
#pragma omp simd reduction(+ : sx, sy, pairs)
    for (int i = 0; i < BLOCK; i++) {
        double t = x[i] * x[i] + y[i] * y[i];
        pairs += t <= 1;
        t = t <= 1 ? t : 1;
        double factor = sqrt(-2 * natural_log(t) / t);
        double gx = x[i] * factor, gy = y[i] * factor;
        sx += gx;
        sy += gy;
        double ax = fabs(gx), ay = fabs(gy);
        ring[i] = (uint32_t)(int)(ax > ay ? ax : ay);
    }
    tally->sum[0] += sx;
    tally->sum[1] += sy;
    tally->pairs += pairs;
}

/* Count the pairs in each annulus. The first three are counted by vectorised comparisons; pairs in other
   annuli are rare, and are counted one by one. */
static void count_rings(const uint32_t *restrict ring, Tally *tally) {
    uint32_t one = 0, two = 0, three = 0, beyond = 0;
    /* hot loop: vectorised */
    for (int i = 0; i < BLOCK; i++) {
        one += ring[i] == 1;
        two += ring[i] == 2;
        three += ring[i] == 3;
        beyond += ring[i] > 3;
    }
    tally->annulus[1] += one;
    tally->annulus[2] += two;
    tally->annulus[3] += three;
    for (int i = 0; beyond && i < BLOCK; i++)
        if (ring[i] > 3) {
            tally->annulus[ring[i] < ANNULI ? ring[i] : ANNULI - 1]++;
            beyond--;
        }
}

/* Compute `blocks` blocks of pairs from block `first` on, divided among the threads. */
static void run_blocks(Ep *s, long first, long blocks) {
    int wanted = s->common.threads;
#pragma omp parallel num_threads(wanted) if (wanted > 1)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        long begin = first + share_begin(blocks, thread, threads);
        long end = first + share_begin(blocks, thread + 1, threads);
        Worker *worker = &s->worker[thread * PLACES + s->place];
        Lanes lanes;
        lanes_start(&lanes, begin);
        if (s->common.corrupt && begin == 0)
            lanes.x[0] ^= UINT64_C(1) << 40;
        for (long block = begin; block < end; block++) {
            uniform(&lanes, s->stride, worker->x, worker->y);
            gaussian(worker->x, worker->y, worker->ring, &worker->tally);
            count_rings(worker->ring, &worker->tally);
        }
    }
}

static void *prepare(Spec *spec, const World *world) {
    Ep *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", class_names, CLASSES, 0);
    s->all_blocks = 1L << (classes[s->class].m - LOG_BLOCK);
    s->stride = random_power(random_factor, 2 * LANES);
    /* The addresses of the deviates decide which data they conflict with in the first-level cache: the rates
       of two places differ by 1 %. Every slice uses the next place, so that an instance averages over many.
       All places together need much less than the minimum size of an arena, 2 MiB. */
    size_t workers = (size_t)s->common.threads * PLACES * sizeof *s->worker;
    s->worker = aligned_alloc(LINE, workers);
    if (!s->worker)
        fail("out of memory");
    memset(s->worker, 0, workers);
    return s;
}

/* Run a slice. A unit of work is a block of pairs on each rank. */
static void slice(void *state, long units, Slice *out) {
    Ep *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    long first = (s->next + s->world.rank * units) % s->all_blocks;
    run_blocks(s, first, units);
    run_blocks(s, first, take_whole(&s->owed, s->common.extra * (double)units));
    double seconds = now() - start;
    s->place = (s->place + 1) % PLACES;
    s->next = (s->next + units * s->world.size) % s->all_blocks;
    one_rate(out, seconds, 0, 2.0 * BLOCK * (double)units * (double)s->world.size);
}

/* Return the sum of the tallies of all threads, and reset them to zero. */
static Tally take_tallies(Ep *s) {
    Tally sum = {0};
    for (int w = 0; w < s->common.threads * PLACES; w++) {
        Tally *one = &s->worker[w].tally;
        sum.sum[0] += one->sum[0];
        sum.sum[1] += one->sum[1];
        sum.pairs += one->pairs;
        for (int ring = 0; ring < ANNULI; ring++)
            sum.annulus[ring] += one->annulus[ring];
        *one = (Tally){0};
    }
    return sum;
}

static void verify(void *state, Verified *v) {
    Ep *s = state;
    long begin = share_begin(s->all_blocks, s->world.rank, s->world.size);
    long end = share_begin(s->all_blocks, s->world.rank + 1, s->world.size);
    take_tallies(s);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    run_blocks(s, begin, end - begin);
    Tally mine = take_tallies(s), all;
    MPI(MPI_Allreduce(mine.sum, all.sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    MPI(MPI_Allreduce(&mine.pairs, &all.pairs, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    MPI(MPI_Allreduce(mine.annulus, all.annulus, ANNULI, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->seconds = now() - start;
    v->work = ldexp(1, classes[s->class].m + 1);

    all.annulus[0] = all.pairs;
    for (int ring = 1; ring < ANNULI; ring++)
        all.annulus[0] -= all.annulus[ring];
    double sx = classes[s->class].sx, sy = classes[s->class].sy;
    v->ok = fabs((all.sum[0] - sx) / sx) <= tolerance && fabs((all.sum[1] - sy) / sy) <= tolerance;
    text_add(&v->expected, "\"class\":\"%s\",\"sx\":%.17g,\"sy\":%.17g,\"relative_tolerance\":%g",
             class_names[s->class], sx, sy, tolerance);
    text_add(&v->found, "\"sx\":");
    json_number(&v->found, all.sum[0]);
    text_add(&v->found, ",\"sy\":");
    json_number(&v->found, all.sum[1]);
    text_add(&v->found, ",\"pairs\":%ld,\"counts\":[", all.pairs);
    for (int ring = 0; ring < ANNULI; ring++)
        text_add(&v->found, "%s%ld", ring ? "," : "", all.annulus[ring]);
    text_add(&v->found, "]");
}

static void release(void *state) {
    Ep *s = state;
    free(s->worker);
    free(s);
}

static const Kernel ep_kernel = {"ep", prepare, slice, verify, release};
LISTED(ep_kernel)
