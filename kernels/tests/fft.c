/* Compares the transforms of FT with the sum that defines them, for every length of a class and one more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../micro/ft/ft_fft.h"

enum { LONGEST = 1024, APART = 3 };
static _Alignas(sizeof(Point)) Point given[LONGEST], work[LONGEST], apart[APART * LONGEST], back[LONGEST];
static double along[LONGEST];
static int failures;

static void expect(int length, const char *what, double error, double most) {
    if (error <= most)
        return;
    printf("length %d, %s: off by %g, more than %g\n", length, what, error, most);
    failures++;
}

static double random_number(void) {
    return (double)rand() / RAND_MAX - 0.5;
}

/* Return the largest error over all frequencies and lanes. */
static double error_of_forward(const Fft *fft, const long *at) {
    int n = fft->length;
    double worst = 0;
    for (int k = 0; k < n; k++)
        for (int lane = 0; lane < LANES; lane++) {
            double re = 0, im = 0;
            for (int j = 0; j < n; j++) {
                double angle = -2 * M_PI * (double)(j * k % n) / n, c = cos(angle), s = sin(angle);
                re += given[j].re[lane] * c - given[j].im[lane] * s;
                im += given[j].re[lane] * s + given[j].im[lane] * c;
            }
            const Point *found = apart + at[fft_place(fft, k)];
            worst = fmax(worst, hypot(found->re[lane] - re, found->im[lane] - im));
        }
    return worst;
}

/* Return the largest difference between `back` and `given` times by[lane]. */
static double error_of_return(int n, const Lanes *by) {
    double worst = 0;
    for (int i = 0; i < n; i++)
        for (int lane = 0; lane < LANES; lane++)
            worst = fmax(worst, hypot(back[i].re[lane] - given[i].re[lane] * (*by)[lane],
                                      back[i].im[lane] - given[i].im[lane] * (*by)[lane]));
    return worst;
}

static void test_length(int n) {
    Fft fft = fft_make(n);
    long at[LONGEST];
    Lanes once, across, both;
    for (int i = 0; i < n; i++) {
        at[i] = (long)APART * (n - 1 - i);
        along[i] = 0.25;
        for (int lane = 0; lane < LANES; lane++) {
            given[i].re[lane] = random_number();
            given[i].im[lane] = random_number();
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        once[lane] = n;
        across[lane] = lane + 1;
        both[lane] = 0.25 * n * (lane + 1);
    }
    double most = 1e-15 * n; /* rounding: 1e-16 for each of log n passes, of a sum that is sqrt(n) as large */
    Lines straight = {given, fft.straight, false}, scattered = {apart, at, true};
    fft_forward(&fft, straight, work, scattered);
    expect(n, "forward", error_of_forward(&fft, at), most);
    Lines result = {back, fft.straight, false};
    fft_inverse(&fft, scattered, back, result);
    expect(n, "inverse", error_of_return(n, &once), most * sqrt(n));
    fft_inverse_scaled(&fft, scattered, along, &across, work, result);
    expect(n, "scaled inverse", error_of_return(n, &both), most * sqrt(n) * LANES);
    along[1] = 0; /* a factor of its own for each frequency: now the result has to differ */
    fft_inverse_scaled(&fft, scattered, along, &across, work, result);
    if (error_of_return(n, &both) < 1e-6)
        expect(n, "factors by place", 1, 0);
    fft_free(&fft);
}

static void test_turn(void) {
    for (int i = 0; i < LANES; i++)
        for (int lane = 0; lane < LANES; lane++) {
            given[i].re[lane] = LANES * i + lane;
            given[i].im[lane] = -given[i].re[lane];
        }
    fft_turn(given, back);
    for (int i = 0; i < LANES; i++)
        for (int lane = 0; lane < LANES; lane++) {
            double number = LANES * lane + i;
            expect(LANES, "turn", fabs(back[i].re[lane] - number) + fabs(back[i].im[lane] + number), 0);
        }
}

int main(void) {
    for (int n = 16; n <= LONGEST; n *= 2)
        test_length(n);
    test_turn();
    return failures > 0;
}
