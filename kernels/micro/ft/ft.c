/* FT (RNR-94-007): solves a diffusion equation by Fourier transforms of a field in three dimensions. */
#include <math.h>
#include <stdlib.h>

#include "fail.h"
#include "ft_grid.h"
#include "kernel.h"

enum { MOST_STEPS = 20, SAMPLES = 1024 };

static const char *const class_names[] = {"S", "W", "A", "B", "C"};
static const struct {
    int size[3], steps;
    double sum[MOST_STEPS][2]; /* of the samples after each step: real and imaginary part */
} classes[] = {
    {{64, 64, 64},
     6,
     {{554.6087004964, 484.5363331978},
      {554.6385409189, 486.5304269511},
      {554.6148406171, 488.3910722336},
      {554.5423607415, 490.1273169046},
      {554.4255039624, 491.7475857993},
      {554.2683411902, 493.2597244941}}},
    {{128, 128, 32},
     6,
     {{567.3612178944, 529.3246849175},
      {563.1436885271, 528.2149986629},
      {559.402408997, 527.0996558037},
      {556.069804702, 526.0027904925},
      {553.089899125, 524.9400845633},
      {550.4159734538, 523.9212247086}}},
    {{256, 256, 128},
     6,
     {{504.6735008193, 511.404790551},
      {505.9412319734, 509.8809666433},
      {506.9376896287, 509.8144042213},
      {507.7892868474, 510.1336130759},
      {508.5233095391, 510.4914655194},
      {509.1487099959, 510.7917842803}}},
    {{512, 256, 256},
     20,
     {{517.7643571579, 507.7803458597}, {515.4521291263, 508.8249431599}, {514.6409228649, 509.6208912659},
      {514.2378756213, 510.1023387619}, {513.9626667737, 510.3976610617}, {513.7423460082, 510.5948019802},
      {513.5547056878, 510.7404165783}, {513.3910925466, 510.8576573661}, {513.247070539, 510.9577278523},
      {513.1197729984, 511.0460304483}, {513.0070319283, 511.12524338},   {512.9070537032, 511.1968077718},
      {512.8182883502, 511.2616233064}, {512.7393733383, 511.3203605551}, {512.669106202, 511.3735928093},
      {512.6064276004, 511.4218460548}, {512.550407657, 511.465613976},   {512.500233172, 511.5053595966},
      {512.4551951846, 511.5415130407}, {512.4146770029, 511.5744692211}}},
    {{512, 512, 512},
     20,
     {{519.5078707457, 514.9019699238}, {515.5422171134, 512.7578201997}, {514.4678022222, 512.2251847514},
      {514.0150594328, 512.1090289018}, {513.755042681, 512.1143685824},  {513.5811056728, 512.1496764568},
      {513.4569343165, 512.1870921893}, {513.3651975661, 512.2193250322}, {513.2955192805, 512.2454735794},
      {513.2410471738, 512.2663649603}, {513.1971141679, 512.2830879827}, {513.1605205716, 512.2965869718},
      {513.1290734194, 512.3075927445}, {513.1012720314, 512.3166486553}, {513.0760908195, 512.3241541685},
      {513.0528295923, 512.3304037599}, {513.0310107773, 512.3356167976}, {513.0103090133, 512.3399592211},
      {512.9905029333, 512.3435588985}, {512.9714421109, 512.3465164008}}},
};
static const double tolerance = 1e-12, diffusivity = 1e-6;

typedef struct {
    World world;
    Common common;
    size_t class;
    long turn; /* steps done by slices */
    Grid grid;
    double sum[MOST_STEPS][2]; /* on rank 0 */
} Ft;

/* Set the factors exp(-4 a pi^2 k^2 t) of each dimension for a step. Their product is the factor of a
 * frequency. */
static void set_decay(Ft *s, int step) {
    for (int d = 0; d < 3; d++) {
        int n = s->grid.size[d];
        for (int k = 0; k < n; k++) {
            double frequency = k < n / 2 ? k : k - n;
            s->grid.decay[d][fft_place(&s->grid.fft[d], k)] =
                exp(-4 * diffusivity * M_PI * M_PI * frequency * frequency * step);
        }
    }
}

/* Sum up the samples j = 1 to 1024 at the points (j, 3 j, 5 j), divided by the number of all points. */
static void sum_samples(Ft *s, double sum[2]) {
    const int *n = s->grid.size;
    double mine[2] = {0, 0}, scale = 1 / ((double)n[0] * n[1] * n[2]);
    for (int j = 1; j <= SAMPLES; j++) {
        double value[2];
        if (ft_grid_value(&s->grid, j % n[0], 3 * j % n[1], 5 * j % n[2], value)) {
            mine[0] += value[0] * scale;
            mine[1] += value[1] * scale;
        }
    }
    MPI_TIMED(s->grid.comm, MPI_Reduce(mine, sum, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
}

/* Compute the field after `step` steps from the spectrum of the first field. */
static void iterate(Ft *s, int step) {
    set_decay(s, step);
    ft_grid_inverse(&s->grid);
    sum_samples(s, s->sum[step - 1]);
}

static double work_of(const Ft *s, bool begin, double steps) {
    const int *n = s->grid.size;
    double points = (double)n[0] * n[1] * n[2], log_points = log(points);
    double work = steps * (5.23518 + 7.21113 * log_points);
    if (begin)
        work += 14.8157 + 7.19641 * log_points;
    return points * work;
}

static void *prepare(Spec *spec, const World *world) {
    Ft *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", class_names, sizeof class_names / sizeof *class_names, 0);
    const int *size = classes[s->class].size;
    int most = size[0] < size[1] ? size[0] : size[1];
    if (!power_of_two(world->size) || world->size > most)
        fail("ft: class %s runs on 1, 2, 4, ... %d ranks, not on %d", class_names[s->class], most,
             world->size);
    s->grid = ft_grid_make(size, world, s->common.threads, s->common.pages);
    ft_grid_begin(&s->grid);
    return s;
}

/* Run a slice. A unit of work is one step. */
static void slice(void *state, long units, Slice *out) {
    Ft *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->grid.comm = 0;
    double start = now();
    for (long i = 0; i < units; i++)
        iterate(s, (int)(s->turn++ % classes[s->class].steps) + 1);
    double extra = s->common.extra * (double)units;
    for (; extra >= 1; extra--)
        iterate(s, 1);
    if (extra > 0) /* samples and their sums, far below a hundredth, are left out */
        ft_grid_inverse_part(&s->grid, extra);
    double seconds = now() - start;
    one_rate(out, seconds, s->grid.comm, work_of(s, false, (double)units));
}

/* Return the largest error of the sums against the published ones. */
static double worst_error(const Ft *s) {
    double worst = 0;
    for (int step = 0; step < classes[s->class].steps; step++)
        for (int part = 0; part < 2; part++) {
            double expected = classes[s->class].sum[step][part];
            double error = fabs((s->sum[step][part] - expected) / expected);
            if (isnan(error))
                return error;
            worst = fmax(worst, error);
        }
    return worst;
}

/* The time is measured as published: it includes the tables and the random numbers, which are computed once
 * before. */
static void verify(void *state, Verified *v) {
    Ft *s = state;
    int steps = classes[s->class].steps;
    ft_grid_begin(&s->grid);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    ft_grid_begin(&s->grid);
    if (s->common.corrupt && s->world.rank == 0)
        s->grid.spectrum[0].re[0] *= 1.01;
    for (int step = 1; step <= steps; step++)
        iterate(s, step);
    v->seconds = now() - start;
    v->work = work_of(s, true, steps);
    double worst = worst_error(s);
    v->ok = worst <= tolerance;
    const double *last = classes[s->class].sum[steps - 1];
    text_add(&v->expected, "\"class\":\"%s\",\"real\":%.17g,\"imaginary\":%.17g,\"relative_tolerance\":%g",
             class_names[s->class], last[0], last[1], tolerance);
    text_add(&v->found, "\"real\":");
    json_number(&v->found, s->sum[steps - 1][0]);
    text_add(&v->found, ",\"imaginary\":");
    json_number(&v->found, s->sum[steps - 1][1]);
    text_add(&v->found, ",\"sums\":%d,\"worst_relative_error\":", steps);
    json_number(&v->found, worst);
}

static void release(void *state) {
    Ft *s = state;
    ft_grid_free(&s->grid);
    free(s);
}

static const Kernel ft_kernel = {"ft", prepare, slice, verify, release};
LISTED(ft_kernel)
