/* Fourier transforms in place, with radix 8 and 4. The inverse transform goes from short to long transforms
   (with the factors before the butterflies), the forward transform from long to short ones. So neither has to
   reorder elements. */
#include "ft_fft.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "fail.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef long long Places __attribute__((vector_size(sizeof(Lanes))));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Places){__VA_ARGS__})
#endif

/* Compute exp(2 pi i part / whole) from an angle of at most pi/4, for which cos and sin are most exact. */
static void root_of_one(long part, long whole, double root[2]) {
    long eighths = 8 * part / whole; /* octant */
    long from_axis = part - (eighths + 1) / 2 * whole / 4;
    double angle = 2 * M_PI * (double)from_axis / (double)whole, c = cos(angle), s = sin(angle);
    const double turned[4][2] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    root[0] = turned[(eighths + 1) / 2 % 4][0];
    root[1] = turned[(eighths + 1) / 2 % 4][1];
}

static void *taken(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory)
        fail("out of memory");
    return memory;
}

static void make_roots(FftPass *pass) {
    int others = pass->radix - 1;
    pass->root = taken((size_t)pass->length * (size_t)others, 2 * sizeof(double));
    for (int k = 0; k < pass->length; k++)
        for (int j = 1; j <= others; j++)
            root_of_one((long)j * k, (long)pass->length * pass->radix, pass->root + 2 * (k * others + j - 1));
}

Fft fft_make(int length) {
    Fft fft = {.length = length};
    int log = 0;
    while (1 << log < length)
        log++;
    if (1 << log != length || log < 4)
        fail("no transform of length %d", length);
    for (int done = 0; done < log; fft.passes++) {
        /* Fours first: 2 in a row where 8s would leave a factor of 2. */
        int step = (log - done) % 3 == 0 ? 3 : 2;
        fft.pass[fft.passes] = (FftPass){.radix = 1 << step, .length = 1 << done};
        make_roots(&fft.pass[fft.passes]);
        done += step;
    }
    fft.straight = taken((size_t)length, sizeof *fft.straight);
    for (int i = 0; i < length; i++)
        fft.straight[i] = i;
    return fft;
}

void fft_free(Fft *fft) {
    for (int p = 0; p < fft->passes; p++)
        free(fft->pass[p].root);
    free(fft->straight);
    *fft = (Fft){0};
}

int fft_place(const Fft *fft, int frequency) {
    int place = 0;
    for (int p = fft->passes - 1; p >= 0; p--) {
        place += frequency % fft->pass[p].radix * fft->pass[p].length;
        frequency /= fft->pass[p].radix;
    }
    return place;
}

INLINE Point sum(Point a, Point b) {
    return (Point){a.re + b.re, a.im + b.im};
}

INLINE Point difference(Point a, Point b) {
    return (Point){a.re - b.re, a.im - b.im};
}

/* sign i a */
INLINE Point quarter(Point a, int sign) {
    return sign > 0 ? (Point){-a.im, a.re} : (Point){a.im, -a.re};
}

/* a root, or a times its conjugate */
INLINE Point times(Point a, const double root[2], int sign) {
    if (sign > 0)
        return (Point){a.re * root[0] - a.im * root[1], a.im * root[0] + a.re * root[1]};
    return (Point){a.re * root[0] + a.im * root[1], a.im * root[0] - a.re * root[1]};
}

INLINE void butterfly4(Point v[4], int sign) {
    Point a = sum(v[0], v[2]), b = difference(v[0], v[2]);
    Point c = sum(v[1], v[3]), d = quarter(difference(v[1], v[3]), sign);
    v[0] = sum(a, c);
    v[1] = sum(b, d);
    v[2] = difference(a, c);
    v[3] = difference(b, d);
}

INLINE void butterfly8(Point v[8], int sign) {
    Point even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
    butterfly4(even, sign);
    butterfly4(odd, sign);
    Point a = sum(odd[1], quarter(odd[1], sign)), b = sum(odd[3], quarter(odd[3], -sign));
    odd[1] = (Point){a.re * M_SQRT1_2, a.im * M_SQRT1_2};
    odd[2] = quarter(odd[2], sign);
    odd[3] = (Point){b.re * -M_SQRT1_2, b.im * -M_SQRT1_2};
    for (int q = 0; q < 4; q++) {
        v[q] = sum(even[q], odd[q]);
        v[q + 4] = difference(even[q], odd[q]);
    }
}

INLINE void butterfly(Point *v, int radix, int sign) {
    if (radix == 8)
        butterfly8(v, sign);
    else
        butterfly4(v, sign);
}

/* A store that bypasses the caches, if the machine has one. streams_end() must be called before other threads
 * read. */
#if defined(__AVX512F__)
INLINE void stream(Lanes *to, Lanes value) {
    _mm512_stream_pd((double *)to, (__m512d)value);
}
#elif defined(__AVX__)
INLINE void stream(Lanes *to, Lanes value) {
    _mm256_stream_pd((double *)to, (__m256d)value);
}
#else
INLINE void stream(Lanes *to, Lanes value) {
    *to = value;
}
#endif

INLINE void streams_end(void) {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

/* Factors of the input of a transform: element i of a lane is multiplied by along[i] across[lane]. */
typedef struct {
    const double *along;
    const Lanes *across;
} Scale;

static const Scale unscaled = {NULL, NULL};

INLINE Point load(Lines from, long i, Scale scale) {
    Point p = from.base[from.at ? from.at[i] : i];
    if (!scale.along)
        return p;
    Lanes by = *scale.across * scale.along[i];
    return (Point){p.re * by, p.im * by};
}

INLINE void store(Lines to, long i, Point p) {
    Point *place = to.base + (to.at ? to.at[i] : i);
    if (to.streamed) {
        stream(&place->re, p.re);
        stream(&place->im, p.im);
    } else
        *place = p;
}

/* One transform of length m r from element `first` on. Constants where it is used: radix, sign, alone (m = 1,
   no factors), and what of the rest is NULL. */
INLINE void transform(const FftPass *pass, int radix, int sign, bool alone, long first, Lines from,
                      Scale scale, Lines to) {
    int length = alone ? 1 : pass->length;
    const double *root = pass->root;
    /* hot loop: vector types */
    for (int k = 0; k < length; k++, root += 2 * (radix - 1)) {
        Point v[8];
        for (int j = 0; j < radix; j++) {
            v[j] = load(from, first + j * length + k, scale);
            if (!alone && sign > 0 && j > 0)
                v[j] = times(v[j], root + 2 * (j - 1), sign);
        }
        butterfly(v, radix, sign);
        for (int j = 0; j < radix; j++) {
            if (!alone && sign < 0 && j > 0)
                v[j] = times(v[j], root + 2 * (j - 1), sign);
            store(to, first + j * length + k, v[j]);
        }
    }
}

/* Do all transforms of a pass within `count` elements. */
INLINE void transforms(const FftPass *pass, int sign, bool alone, long first, long count, Lines from,
                       Scale scale, Lines to) {
    int step = pass->radix * (alone ? 1 : pass->length);
    for (long i = first; i < first + count; i += step)
        if (pass->radix == 8)
            transform(pass, 8, sign, alone, i, from, scale, to);
        else
            transform(pass, 4, sign, alone, i, from, scale, to);
}

/* All passes except the last process one independent part after the other, so that each part stays in the
   first-level cache. */
INLINE void inverse(const Fft *fft, Lines from, Scale scale, Point *work, Lines to) {
    const FftPass *shortest = fft->pass, *last = fft->pass + fft->passes - 1;
    const Lines line = {work, NULL, false};
    for (long part = 0; part < fft->length; part += last->length) {
        transforms(shortest, 1, true, part, last->length, from, scale, line);
        for (const FftPass *pass = shortest + 1; pass < last; pass++)
            transforms(pass, 1, false, part, last->length, line, unscaled, line);
    }
    transforms(last, 1, false, 0, fft->length, line, unscaled, to);
    if (to.streamed)
        streams_end();
}

void fft_inverse(const Fft *fft, Lines from, Point *work, Lines to) {
    inverse(fft, from, unscaled, work, to);
}

void fft_inverse_scaled(const Fft *fft, Lines from, const double *along, const Lanes *across, Point *work,
                        Lines to) {
    inverse(fft, from, (Scale){along, across}, work, to);
}

void fft_forward(const Fft *fft, Lines from, Point *work, Lines to) {
    const FftPass *shortest = fft->pass, *longest = fft->pass + fft->passes - 1;
    const Lines line = {work, NULL, false};
    transforms(longest, -1, false, 0, fft->length, from, unscaled, line);
    for (long part = 0; part < fft->length; part += longest->length) {
        for (const FftPass *pass = longest - 1; pass > shortest; pass--)
            transforms(pass, -1, false, part, longest->length, line, unscaled, line);
        transforms(shortest, -1, true, part, longest->length, line, unscaled, to);
    }
    if (to.streamed)
        streams_end();
}

/* Rows a and b, b `step` below a: the upper right changes places with the lower left of squares of 2 step. */
#define TURN(step, upper, lower)                                                                             \
    for (int i = 0; i < LANES; i++)                                                                          \
        if (!(i & (step))) {                                                                                 \
            Lanes a = row[i], b = row[i + (step)];                                                           \
            row[i] = SHUFFLE(a, b, upper);                                                                   \
            row[i + (step)] = SHUFFLE(a, b, lower);                                                          \
        }
#define LIST(...) __VA_ARGS__

/* Transpose a square of numbers. */
INLINE void turn_lanes(Lanes row[LANES]) {
#if defined(__AVX512F__)
    TURN(1, LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15))
    TURN(2, LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15))
    TURN(4, LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15))
#elif defined(__AVX__)
    TURN(1, LIST(0, 4, 2, 6), LIST(1, 5, 3, 7))
    TURN(2, LIST(0, 1, 4, 5), LIST(2, 3, 6, 7))
#else
    TURN(1, LIST(0, 2), LIST(1, 3))
#endif
}

void fft_turn(const Point from[LANES], Point to[LANES]) {
    Lanes re[LANES], im[LANES];
    for (int i = 0; i < LANES; i++) {
        re[i] = from[i].re;
        im[i] = from[i].im;
    }
    turn_lanes(re);
    turn_lanes(im);
    for (int i = 0; i < LANES; i++)
        to[i] = (Point){re[i], im[i]};
}
