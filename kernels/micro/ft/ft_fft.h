/* Fourier transforms of length 16, 32, 64, ..., several lines at a time: every vector of the machine holds
   the same element of as many lines. Nothing is scaled. */
#ifndef NEARMETAL_FT_FFT_H
#define NEARMETAL_FT_FFT_H

#include <stdbool.h>

/* Wider vectors than the machine's would be taken apart in memory. */
#if defined(__AVX512F__)
enum { LANES = 8 };
#elif defined(__AVX__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif

enum { FFT_PASSES = 10 };

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));

/* One complex number of each line. */
typedef struct {
    Lanes re, im;
} Point;

/* A pass of radix r makes transforms of length m r out of r transforms of length m. The first has m = 1. */
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

/* Both leave out the sorting of a fast transform: frequency k of a line stands at fft_place(k). */
int fft_place(const Fft *fft, int frequency);

/* LANES lines that begin at a base: element i is base[at[i]]. streamed: what is written to them goes past the
   caches, for memory that is much larger than they are. */
typedef struct {
    Point *base;
    const long *at;
    bool streamed;
} Lines;

/* exp(-2 pi i ...): elements in order -> frequencies by place. `work` holds one Point per element; it may be
   what `from` or `to` stands for. */
void fft_forward(const Fft *fft, Lines from, Point *work, Lines to);

/* exp(+2 pi i ...): frequencies by place -> elements in order. */
void fft_inverse(const Fft *fft, Lines from, Point *work, Lines to);

/* The same of frequencies that are first multiplied by along[place] across[line]. */
void fft_inverse_scaled(const Fft *fft, Lines from, const double *along, const Lanes *across, Point *work,
                        Lines to);

/* LANES points of LANES lines -> the lines of those points. */
void fft_turn(const Point from[LANES], Point to[LANES]);

#endif
