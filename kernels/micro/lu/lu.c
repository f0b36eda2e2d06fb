/* LU (RNR-94-007): steady flow of a compressible gas by symmetric successive over-relaxation. Its sweeps
   cross the ranks as a wavefront, a message of a few kB per neighbour and plane. */
#include "lu.h"

#include <math.h>
#include <stdlib.h>

#include "fail.h"
#include "kernel.h"

enum { CLASSES = 5 };
static const char *const class_names[CLASSES] = {"S", "W", "A", "B", "C"};
static const struct {
    int n, iterations;
    double dt, residual[CFD_FIELDS], error[CFD_FIELDS], integral;
} classes[CLASSES] = {
    {.n = 12,
     .iterations = 50,
     .dt = 0.5,
     .residual = {0.016196343210976703, 0.002197674516482132, 0.0015179927653399185, 0.0015029584435994323,
                  0.03426407315589646},
     .error = {0.0006422331995796092, 8.414434204734792e-05, 5.8588269616485187e-05, 5.847422259515735e-05,
               0.0013103347914111294},
     .integral = 7.841892886593708},
    {.n = 33,
     .iterations = 300,
     .dt = 0.0015,
     .residual = {12.36511638192, 1.317228477799, 2.550120713095, 2.326187750252, 28.26799444189},
     .error = {0.4867877144216, 0.05064652880982, 0.0928181810196, 0.08570126542733, 1.084277417792},
     .integral = 11.61399311023},
    {.n = 64,
     .iterations = 250,
     .dt = 2.0,
     .residual = {779.0210760668937, 63.40276525969287, 194.9924972729248, 178.45301160418538,
                  1838.4760349464248},
     .error = {29.964085685471943, 2.819457636500335, 7.347341269877474, 6.713922568777705,
               70.71531568839258},
     .integral = 26.030925604886278},
    {.n = 102,
     .iterations = 250,
     .dt = 2.0,
     .residual = {3553.2672969982737, 262.1475079531069, 883.3372185095219, 778.1277473942527,
                  7308.796959254531},
     .error = {114.01176380212709, 8.109896365542157, 28.480597317698308, 25.90539456783294,
               260.54907504857414},
     .integral = 47.88716270330823},
    {.n = 162,
     .iterations = 250,
     .dt = 2.0,
     .residual = {10376.698032353785, 892.2124588010086, 2562.3881458266087, 2191.9434385783143,
                  17807.80572610612},
     .error = {215.98639971694928, 15.57895592398636, 54.13188630772078, 48.22626431540454,
               455.90291004325036},
     .integral = 66.64045535721813},
};
static const double tolerance = 1e-8;

typedef struct {
    World world;
    Common common;
    Arena arena;
    size_t class;
    double owed_planes, owed_halo; /* extra work not done yet: planes; halos, in iterations */
    Flow flow;
} Lu;

static void relax(Flow *f) {
    lower_sweep(f, flow_planes(f));
    upper_sweep(f, flow_planes(f), 1 / (lu_relaxation * (2 - lu_relaxation)));
    lu_exchange_halo(&f->exchange, &f->grid, f->u);
    compute_residual(f, flow_planes(f));
}

/* Planted extra work, in iterations: the phases over as many planes, which leaves u as it is and its residual
   correct. Halos are not cut by planes, which would cost more than their share: whole ones are exchanged as
   they become due. */
static void extra_part(Lu *s, double share) {
    Flow *f = &s->flow;
    long planes = take_whole(&s->owed_planes, share * flow_planes(f));
    for (long left = planes, now; left > 0; left -= now) {
        now = left < flow_planes(f) ? left : flow_planes(f);
        lower_sweep(f, (int)now);
        upper_sweep(f, (int)now, 0);
        compute_residual(f, (int)now);
    }
    for (long halos = take_whole(&s->owed_halo, share); halos > 0; halos--)
        lu_exchange_halo(&f->exchange, &f->grid, f->u);
}

static double work_of(const Lu *s, double iterations) {
    double n = classes[s->class].n;
    return iterations * (((1984.77 * n - 10923.3) * n + 27770.9) * n - 144010);
}

static void start_over(Lu *s) {
    Flow *f = &s->flow;
    flow_begin(f);
    if (s->common.corrupt && s->world.rank == 0)
        f->forcing[layout_at(&f->grid.inner, f->grid.ilo, f->grid.jlo)] += 1;
    compute_residual(f, flow_planes(f));
}

static void *prepare(Spec *spec, const World *world) {
    Lu *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_single(spec);
    s->class = spec_choice(spec, "class", class_names, CLASSES, 0);
    Grid grid = lu_grid_make(classes[s->class].n, world);
    s->arena = arena_make(flow_need(&grid), s->common.pages);
    s->flow = flow_make(&grid, classes[s->class].dt, &s->arena);
    arena_touch(&s->arena);
    start_over(s);
    return s;
}

/* Run a slice. A unit of work is one relaxation of the whole grid. */
static void slice(void *state, long units, Slice *out) {
    Lu *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->flow.exchange.seconds = 0;
    double start = now();
    for (long i = 0; i < units; i++)
        relax(&s->flow);
    extra_part(s, s->common.extra * (double)units);
    double seconds = now() - start;
    one_rate(out, seconds, s->flow.exchange.seconds, work_of(s, (double)units));
}

static bool close_to(double found, double expected) {
    return fabs((found - expected) / expected) <= tolerance;
}

static void tell(Text *text, const double residual[CFD_FIELDS], const double error[CFD_FIELDS],
                 double integral) {
    const double *norm[] = {residual, error};
    const char *name[] = {"residual", "error"};
    for (int which = 0; which < 2; which++) {
        text_add(text, "\"%s\":[", name[which]);
        for (int m = 0; m < CFD_FIELDS; m++) {
            text_add(text, m ? "," : "");
            json_number(text, norm[which][m]);
        }
        text_add(text, "],");
    }
    text_add(text, "\"surface_integral\":");
    json_number(text, integral);
}

static void verify(void *state, Verified *v) {
    Lu *s = state;
    start_over(s);
    relax(&s->flow); /* as published: one iteration before the clock, then from the start */
    start_over(s);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    compute_residual(&s->flow, flow_planes(&s->flow));
    for (int i = 0; i < classes[s->class].iterations; i++)
        relax(&s->flow);
    v->seconds = now() - start;
    v->work = work_of(s, classes[s->class].iterations);
    double residual[CFD_FIELDS], error[CFD_FIELDS], integral = lu_surface_integral(&s->flow);
    lu_residual_norm(&s->flow, residual);
    lu_error_norm(&s->flow, error);
    v->ok = close_to(integral, classes[s->class].integral);
    for (int m = 0; m < CFD_FIELDS; m++)
        v->ok = v->ok && close_to(residual[m], classes[s->class].residual[m]) &&
                close_to(error[m], classes[s->class].error[m]);
    text_add(&v->expected, "\"class\":\"%s\",\"relative_tolerance\":%g,", class_names[s->class], tolerance);
    tell(&v->expected, classes[s->class].residual, classes[s->class].error, classes[s->class].integral);
    tell(&v->found, residual, error, integral);
}

static void release(void *state) {
    Lu *s = state;
    lu_grid_free(&s->flow.grid);
    arena_free(&s->arena);
    free(s);
}

static const Kernel lu_kernel = {"lu", prepare, slice, verify, release};
LISTED(lu_kernel)
