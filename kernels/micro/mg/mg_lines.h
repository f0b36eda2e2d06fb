/* The four operators of MG on one row of points (RNR-94-007, section MG). A stencil of 27 points takes the
   eight rows around a row as two sums: of the four that share a face with it, of the four that share an edge.
   What is needed of these sums at x - 1 and x + 1 is put together in w first, so that each point adds it up
   once, not three times. Rows of n points are periodic; w: room for n + 2 values from w[-1] on. */
#ifndef NEARMETAL_MG_LINES_H
#define NEARMETAL_MG_LINES_H

#include "mg_grid.h"

typedef struct {
    const double *at[3][3]; /* z - 1, z, z + 1; y - 1, y, y + 1 */
} Rows;

static inline Rows rows_around(const Grid *g, long z, long y) {
    Rows rows;
    for (int dz = 0; dz < 3; dz++)
        for (int dy = 0; dy < 3; dy++)
            rows.at[dz][dy] = row(g, z + dz - 1, y + dy - 1);
    return rows;
}

/* Pointers of a Rows by name, for the loops below. */
#define NAME_ROWS(rows)                                                                                      \
    const double *restrict below = (rows).at[0][1], *restrict above = (rows).at[2][1];                       \
    const double *restrict left = (rows).at[1][0], *restrict right = (rows).at[1][2];                        \
    const double *restrict low_left = (rows).at[0][0], *restrict low_right = (rows).at[0][2];                \
    const double *restrict high_left = (rows).at[2][0], *restrict high_right = (rows).at[2][2];              \
    const double *restrict middle = (rows).at[1][1]

#define FACES(x) (below[x] + above[x] + left[x] + right[x])
#define EDGES(x) (low_left[x] + low_right[x] + high_left[x] + high_right[x])

static inline void wrap(double *w, long n) {
    w[-1] = w[n - 1];
    w[n] = w[0];
}

/* r = v - A u with A = (-8/3, 0, 1/6, 1/12) */
static inline void residual_line(double *restrict r, const double *restrict v, Rows rows, double *restrict w,
                                 long n) {
    const double a0 = -8.0 / 3, a2 = 1.0 / 6, a3 = 1.0 / 12;
    NAME_ROWS(rows);
    /* hot loop: vectorised */
#pragma omp simd
    for (long x = 0; x < n; x++) {
        double faces = FACES(x), edges = EDGES(x);
        w[x] = a2 * faces + a3 * edges;
        r[x] = v[x] - a0 * middle[x] - a2 * edges;
    }
    wrap(w, n);
    /* hot loop: vectorised */
#pragma omp simd
    for (long x = 0; x < n; x++)
        r[x] -= w[x - 1] + w[x + 1];
}

/* out = u + S r with S = (s[0], s[1], s[2], 0); u NULL stands for 0. */
static inline void smooth_line(double *restrict out, const double *restrict u, Rows rows, const double *s,
                               double *restrict w, long n) {
    const double s0 = s[0], s1 = s[1], s2 = s[2];
    NAME_ROWS(rows);
    /* hot loop: vectorised */
#pragma omp simd
    for (long x = 0; x < n; x++) {
        double faces = FACES(x), edges = EDGES(x);
        w[x] = s1 * middle[x] + s2 * faces;
        out[x] = s0 * middle[x] + s1 * faces + s2 * edges;
    }
    wrap(w, n);
    if (u) {
        /* hot loop: vectorised */
#pragma omp simd
        for (long x = 0; x < n; x++)
            out[x] += u[x] + (w[x - 1] + w[x + 1]);
    } else {
        /* hot loop: vectorised */
#pragma omp simd
        for (long x = 0; x < n; x++)
            out[x] += w[x - 1] + w[x + 1];
    }
}

/* coarse = P r with P = (1/2, 1/4, 1/8, 1/16), which is (1, 2, 1) in each direction / 16; coarse point j lies
   at 2j + 1. n: points of r. */
static inline void restrict_line(double *restrict coarse, Rows rows, double *restrict w, long n) {
    NAME_ROWS(rows);
    /* hot loop: vectorised */
#pragma omp simd
    for (long x = 0; x < n; x++)
        w[x] = 0.25 * middle[x] + 0.125 * FACES(x) + 0.0625 * EDGES(x);
    wrap(w, n);
    /* hot loop: vectorised */
#pragma omp simd
    for (long j = 0; j < n / 2; j++)
        coarse[j] = w[2 * j] + 2 * w[2 * j + 1] + w[2 * j + 2];
}

/* out = u + Q z at row (fine_z, fine_y) of n points, Q: trilinear; u NULL stands for 0. A fine row lies on a
   coarse one where its number is odd, between two where it is even. */
static inline void interpolate_line(double *restrict out, const double *restrict u, const Grid *z,
                                    long fine_z, long fine_y, double *restrict w, long n) {
    /* Coarse row j lies on fine row 2 j + 1; halo rows have negative numbers, so shifts and no divisions. */
    long low = (fine_z - 1) >> 1, high = fine_z >> 1, left = (fine_y - 1) >> 1, right = fine_y >> 1;
    const double *restrict a = row(z, low, left);
    if (low == high && left == right) {
#pragma omp simd
        for (long j = 0; j < n / 2; j++)
            w[j] = a[j];
    } else if (low == high || left == right) {
        const double *restrict b = row(z, high, right);
        /* hot loop: vectorised */
#pragma omp simd
        for (long j = 0; j < n / 2; j++)
            w[j] = 0.5 * (a[j] + b[j]);
    } else {
        const double *restrict b = row(z, high, right), *restrict c = row(z, low, right),
                               *restrict d = row(z, high, left);
        /* hot loop: vectorised */
#pragma omp simd
        for (long j = 0; j < n / 2; j++)
            w[j] = 0.25 * (a[j] + b[j] + c[j] + d[j]);
    }
    w[-1] = w[n / 2 - 1];
    if (u) {
        /* hot loop: vectorised */
#pragma omp simd
        for (long j = 0; j < n / 2; j++) {
            out[2 * j] = u[2 * j] + 0.5 * (w[j - 1] + w[j]);
            out[2 * j + 1] = u[2 * j + 1] + w[j];
        }
    } else {
        /* hot loop: vectorised */
#pragma omp simd
        for (long j = 0; j < n / 2; j++) {
            out[2 * j] = 0.5 * (w[j - 1] + w[j]);
            out[2 * j + 1] = w[j];
        }
    }
}

#endif
