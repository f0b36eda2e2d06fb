/* CG (RNR-94-007): the smallest eigenvalue of a sparse matrix by inverse iteration, solved by 25 steps of
   conjugate gradients. Rows are divided among the ranks; vectors are gathered by recursive doubling. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "cg_matrix.h"
#include "fail.h"
#include "kernel.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { INNER = 25 };

static const char *const class_names[] = {"S", "W", "A", "B", "C"};
enum { CLASSES = sizeof class_names / sizeof *class_names };
static const struct {
    int n, nonzer, iterations;
    double shift, zeta;
} classes[CLASSES] = {
    {1400, 7, 15, 10, 8.5971775078648},     {7000, 8, 15, 12, 10.362595087124},
    {14000, 11, 15, 20, 17.130235054029},   {75000, 13, 75, 60, 22.712745482631},
    {150000, 15, 75, 110, 28.973605592845},
};
static const double tolerance = 1e-10;

typedef struct {
    World world;
    Common common;
    Arena arena;
    size_t class;
    int n, first, rows;
    double owed; /* steps of extra work not done yet */
    Matrix matrix;
    double *x, *q, *r; /* own rows */
    double *p, *z;     /* all of them; the own part is current, the rest after gather() */
    double alpha, beta, scale;
    double comm; /* seconds in MPI calls since it was last set to 0 */
} Cg;

static int row_begin(const Cg *s, int rank) {
    return (int)share_begin(s->n, rank, s->world.size);
}

/* Gather all parts of v on every rank. After step k a rank holds the parts of its aligned group of 2^k ranks,
   which are contiguous; in each step, neighbouring groups exchange their parts. So the message pattern is the
   same with every MPI library, unlike that of MPI_Allgather. */
static void gather(Cg *s, double *v) {
    for (int group = 1; group < s->world.size; group *= 2) {
        int mine = s->world.rank / group * group, other = mine ^ group, partner = s->world.rank ^ group;
        int send = row_begin(s, mine), receive = row_begin(s, other);
        MPI_TIMED(s->comm, MPI_Sendrecv(v + send, row_begin(s, mine + group) - send, MPI_DOUBLE, partner, 0,
                                        v + receive, row_begin(s, other + group) - receive, MPI_DOUBLE,
                                        partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

#ifdef __AVX512F__
/* Compute the product of a row, sixteen elements at a time, and prefetch the following ones. Without this, a
   core has too few cache lines of a large matrix in flight. */
static inline double row_product(const Matrix *a, int row, const double *v) {
    enum { AHEAD = 256 };
    const int *column = a->column;
    const double *value = a->value;
    const __m512d zero = _mm512_setzero_pd();
    __m512d even = zero, odd = zero;
    long k = a->start[row], end = a->start[row + 1];
    /* hot loop: vector types */
    for (; k + 16 <= end; k += 16) {
        __builtin_prefetch(value + k + AHEAD);
        __builtin_prefetch(value + k + AHEAD + 8);
        __builtin_prefetch(column + k + AHEAD);
        __m256i first = _mm256_loadu_si256((const void *)(column + k));
        __m256i second = _mm256_loadu_si256((const void *)(column + k + 8));
        even = _mm512_fmadd_pd(_mm512_loadu_pd(value + k), _mm512_i32gather_pd(first, v, 8), even);
        odd = _mm512_fmadd_pd(_mm512_loadu_pd(value + k + 8), _mm512_i32gather_pd(second, v, 8), odd);
    }
    for (; k < end; k += 8) {
        __mmask8 here = end - k < 8 ? (__mmask8)((1 << (end - k)) - 1) : 0xff;
        __m256i columns = _mm512_castsi512_si256(_mm512_maskz_loadu_epi32(here, column + k));
        __m512d gathered = _mm512_mask_i32gather_pd(zero, here, columns, v, 8);
        even = _mm512_fmadd_pd(_mm512_maskz_loadu_pd(here, value + k), gathered, even);
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(even, odd));
}
#else
static inline double row_product(const Matrix *a, int row, const double *restrict v) {
    const int *column = a->column;
    const double *value = a->value;
    double sum = 0;
    /* hot loop: vectorised */
#pragma omp simd reduction(+ : sum)
    for (long k = a->start[row]; k < a->start[row + 1]; k++)
        sum += value[k] * v[column[k]];
    return sum;
}
#endif

/* A loop over this rank's rows from <= i < to. It returns its part of a sum, if it computes one. */
typedef double Loop(Cg *s, int from, int to);

/* Run a loop over all rows of this rank, divided among the threads. Return the sum. */
static double over_rows(Cg *s, Loop *loop) {
    if (s->common.threads == 1)
        return loop(s, 0, s->rows);
    double sum = 0;
#pragma omp parallel num_threads(s->common.threads) reduction(+ : sum)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        sum = loop(s, (int)share_begin(s->rows, thread, threads),
                   (int)share_begin(s->rows, thread + 1, threads));
    }
    return sum;
}

/* Do the same on all ranks, and return the sum over the ranks. */
static double over_all_rows(Cg *s, Loop *loop) {
    double sum = over_rows(s, loop);
    if (s->world.size > 1)
        MPI_TIMED(s->comm, MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return sum;
}

/* z = 0, r = p = x; r'r. */
static double begin_rows(Cg *s, int from, int to) {
    double *z = s->z + s->first, *p = s->p + s->first, rho = 0;
#pragma omp simd reduction(+ : rho)
    for (int i = from; i < to; i++) {
        z[i] = 0;
        s->r[i] = p[i] = s->x[i];
        rho += s->x[i] * s->x[i];
    }
    return rho;
}

/* q = A p; p'q. */
static double product_rows(Cg *s, int from, int to) {
    const double *restrict p = s->p + s->first;
    double *restrict q = s->q, pq = 0;
    for (int i = from; i < to; i++) {
        q[i] = row_product(&s->matrix, i, s->p);
        pq += p[i] * q[i];
    }
    return pq;
}

/* z += alpha p, r -= alpha q; r'r. */
static double advance_rows(Cg *s, int from, int to) {
    const double *restrict p = s->p + s->first, *restrict q = s->q;
    double *restrict z = s->z + s->first, *restrict r = s->r, alpha = s->alpha, next = 0;
    /* hot loop: vectorised */
#pragma omp simd reduction(+ : next)
    for (int i = from; i < to; i++) {
        z[i] += alpha * p[i];
        r[i] -= alpha * q[i];
        next += r[i] * r[i];
    }
    return next;
}

/* p = r + beta p. */
static double turn_rows(Cg *s, int from, int to) {
    const double *restrict r = s->r;
    double *restrict p = s->p + s->first, beta = s->beta;
    /* hot loop: vectorised */
    for (int i = from; i < to; i++)
        p[i] = r[i] + beta * p[i];
    return 0;
}

/* | x - A z |^2 */
static double residual_rows(Cg *s, int from, int to) {
    double sum = 0;
    for (int i = from; i < to; i++) {
        double d = s->x[i] - row_product(&s->matrix, i, s->z);
        sum += d * d;
    }
    return sum;
}

static double sum_xz(Cg *s, int from, int to) {
    const double *z = s->z + s->first;
    double xz = 0;
#pragma omp simd reduction(+ : xz)
    for (int i = from; i < to; i++)
        xz += s->x[i] * z[i];
    return xz;
}

static double sum_zz(Cg *s, int from, int to) {
    const double *z = s->z + s->first;
    double zz = 0;
#pragma omp simd reduction(+ : zz)
    for (int i = from; i < to; i++)
        zz += z[i] * z[i];
    return zz;
}

/* x = scale z. */
static double scale_rows(Cg *s, int from, int to) {
    const double *restrict z = s->z + s->first;
    double *restrict x = s->x, scale = s->scale;
    for (int i = from; i < to; i++)
        x[i] = scale * z[i];
    return 0;
}

/* One step of conjugate gradients; returns the new r'r. */
static double solve_step(Cg *s, double rho) {
    gather(s, s->p);
    s->alpha = rho / over_all_rows(s, product_rows);
    double next = over_all_rows(s, advance_rows);
    s->beta = next / rho;
    over_rows(s, turn_rows);
    return next;
}

/* One outer iteration: solve A z = x, zeta = shift + 1 / x'z, x = z / |z|. */
static double iterate(Cg *s, double *rest) {
    double rho = over_all_rows(s, begin_rows);
    for (int step = 0; step < INNER; step++)
        rho = solve_step(s, rho);
    gather(s, s->z);
    *rest = sqrt(over_all_rows(s, residual_rows));
    double xz = over_all_rows(s, sum_xz);
    s->scale = 1 / sqrt(over_all_rows(s, sum_zz));
    over_rows(s, scale_rows);
    return classes[s->class].shift + 1 / xz;
}

/* Do planted extra work: `steps` steps with one matrix product each. An outer iteration has 26 such steps.
 * x is not changed. */
static void extra_steps(Cg *s, long steps) {
    double rho = 0;
    for (long step = 0; step < steps; step++) {
        if (step % INNER == 0)
            rho = over_all_rows(s, begin_rows);
        rho = solve_step(s, rho);
    }
}

static double work_of(const Cg *s, double iterations) {
    double nz = classes[s->class].nonzer, row = nz * (nz + 1);
    return 2 * iterations * s->n * (3 + row + INNER * (5 + row) + 3);
}

static void start_over(Cg *s) {
    for (int i = 0; i < s->rows; i++)
        s->x[i] = 1;
}

static void *prepare(Spec *spec, const World *world) {
    Cg *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", class_names, CLASSES, 0);
    s->n = classes[s->class].n;
    if (!power_of_two(world->size) || world->size > s->n)
        fail("cg: runs on 1, 2, 4, 8, ... ranks, not on %d", world->size);
    s->first = row_begin(s, world->rank);
    s->rows = row_begin(s, world->rank + 1) - s->first;
    MatrixPlan *plan =
        matrix_plan(s->n, classes[s->class].nonzer, classes[s->class].shift, s->first, s->rows);
    size_t own = (size_t)s->rows * sizeof(double), all = (size_t)s->n * sizeof(double);
    s->arena = arena_make(matrix_need(plan) + 3 * arena_need(own) + 2 * arena_need(all), s->common.pages);
    s->matrix = matrix_make(plan, &s->arena);
    s->x = arena_take(&s->arena, own);
    s->q = arena_take(&s->arena, own);
    s->r = arena_take(&s->arena, own);
    s->p = arena_take(&s->arena, all);
    s->z = arena_take(&s->arena, all);
    if (s->common.corrupt && world->rank == 0)
        s->matrix.value[0] *= 1.01;
    arena_touch(&s->arena);
    start_over(s);
    return s;
}

/* Run a slice. A unit of work is one outer iteration. */
static void slice(void *state, long units, Slice *out) {
    Cg *s = state;
    double rest;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->comm = 0;
    double start = now();
    for (long i = 0; i < units; i++)
        iterate(s, &rest);
    extra_steps(s, take_whole(&s->owed, s->common.extra * (double)(units * (INNER + 1))));
    double seconds = now() - start;
    one_rate(out, seconds, s->comm, work_of(s, (double)units));
}

static void verify(void *state, Verified *v) {
    Cg *s = state;
    double zeta = 0, rest = 0, expected = classes[s->class].zeta;
    start_over(s);
    iterate(s, &rest); /* once before the clock starts, as published */
    start_over(s);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (int i = 0; i < classes[s->class].iterations; i++)
        zeta = iterate(s, &rest);
    v->seconds = now() - start;
    v->work = work_of(s, classes[s->class].iterations);
    v->ok = fabs((zeta - expected) / expected) <= tolerance;
    text_add(&v->expected, "\"class\":\"%s\",\"zeta\":%.17g,\"relative_tolerance\":%g", class_names[s->class],
             expected, tolerance);
    text_add(&v->found, "\"zeta\":");
    json_number(&v->found, zeta);
    text_add(&v->found, ",\"residual\":");
    json_number(&v->found, rest);
}

static void release(void *state) {
    Cg *s = state;
    arena_free(&s->arena);
    free(s);
}

static const Kernel cg_kernel = {"cg", prepare, slice, verify, release};
LISTED(cg_kernel)
