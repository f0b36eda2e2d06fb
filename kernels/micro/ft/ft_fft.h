/* Fourier transforms of length 16, 32, 64, ... of LANES lines at a time: a vector register holds the same
   element of all these lines. The results are not scaled. */
#ifndef NEARMETAL_FT_FFT_H
#define NEARMETAL_FT_FFT_H

#include <stdbool.h>

/* The width of the machine's vector registers: wider vectors would be split in memory. */
#if defined(__AVX512F__)
enum { LANES = 8 };
#elif defined(__AVX__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif

enum { FFT_PASSES = 10 };

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));

/* One complex number of each of LANES lines. */
typedef struct {
    Lanes re, im;
} Point;

/* A pass of radix r combines r transforms of length m into one of length m r. The first pass has m = 1. */
typedef struct {
    int radix, length;
    double *
        root; /* exp(2 pi i j k / (m r)) for k < m, 0 < j < r: of each k the r - 1 pairs next to each other */
} FftPass;

typedef struct {
    int length, passes;
    FftPass pass[FFT_PASSES];
    long *straight; /* 0, 1, 2, ... */
} Fft;

Fft fft_make(int length);
void fft_free(Fft *fft);

/* Return the index at which frequency k of a line is stored: the transforms do not reorder their elements. */
int fft_place(const Fft *fft, int frequency);

/* LANES lines in memory: element i is base[at[i]]. streamed: whether stores to them bypass the caches, for
   memory that is much larger than the caches. */
typedef struct {
    Point *base;
    const long *at;
    bool streamed;
} Lines;

/* The forward transform, exp(-2 pi i ...), from elements in order to frequencies at fft_place(). work: room
   for one Point per element; it may be the memory of `from` or `to`. */
void fft_forward(const Fft *fft, Lines from, Point *work, Lines to);

/* The inverse transform, exp(+2 pi i ...), from frequencies at fft_place() to elements in order. */
void fft_inverse(const Fft *fft, Lines from, Point *work, Lines to);

/* The inverse transform of frequencies that are first multiplied by along[place] across[line]. */
void fft_inverse_scaled(const Fft *fft, Lines from, const double *along, const Lanes *across, Point *work,
                        Lines to);

/* Transpose LANES points of LANES lines. */
void fft_turn(const Point from[LANES], Point to[LANES]);

#endif
