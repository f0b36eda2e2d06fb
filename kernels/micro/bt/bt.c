/* BT (RNR-94-007, section 3): the compressible Navier-Stokes equations with a forcing that makes a known
   solution steady, advanced by approximate factorisation into three sets of block-tridiagonal systems. */
#include <stdlib.h>

#include "bt_check.h"
#include "fail.h"
#include "kernel.h"

typedef struct {
    Common common;
    Arena arena;
    size_t class;
    double owed; /* steps of extra work not done yet */
    Flow flow;
} Bt;

/* Compute the initial fields at a point between the walls. For each axis, the exact solution on both walls is
   interpolated linearly. The three interpolations P are combined as the definition says. */
static void begin_at(double xi, double eta, double zeta, double fields[CFD_FIELDS]) {
    const double at[AXES] = {xi, eta, zeta};
    double blend[AXES][CFD_FIELDS];
    for (int axis = 0; axis < AXES; axis++) {
        double wall[2][CFD_FIELDS];
        for (int side = 0; side < 2; side++) {
            double on[AXES] = {xi, eta, zeta};
            on[axis] = side;
            cfd_exact(on[X], on[Y], on[Z], wall[side]);
        }
        for (int m = 0; m < CFD_FIELDS; m++)
            blend[axis][m] = (1 - at[axis]) * wall[0][m] + at[axis] * wall[1][m];
    }
    for (int m = 0; m < CFD_FIELDS; m++) {
        double x = blend[X][m], y = blend[Y][m], z = blend[Z][m];
        fields[m] = x + y + z - x * y - x * z - y * z + x * y * z;
    }
}

static bool is_wall(double coordinate) {
    return coordinate <= 0 || coordinate >= 1;
}

static void initial_at(double xi, double eta, double zeta, double fields[CFD_FIELDS]) {
    if (is_wall(xi) || is_wall(eta) || is_wall(zeta))
        cfd_exact(xi, eta, zeta, fields);
    else
        begin_at(xi, eta, zeta, fields);
}

/* The forcing cancels the right-hand side of the exact solution. */
static void make_forcing(Flow *flow) {
    cells_fill(&flow->cells, cfd_exact);
    bt_residual(flow);
    for (int s = 0; s < flow->cells.q; s++) {
        const Cell *cell = &flow->cells.cell[s];
        for (int k = cell->begin[Z]; k < cell->end[Z]; k++)
            for (int m = 0; m < CFD_FIELDS; m++)
                for (int j = cell->begin[Y]; j < cell->end[Y]; j++) {
                    long row = point_at(cell, 0, j, k) + m * cell->field;
                    for (int i = cell->begin[X]; i < cell->end[X]; i++)
                        cell->forcing[row + i] = -cell->rhs[row + i];
                }
    }
}

static void *prepare(Spec *spec, const World *world) {
    Bt *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", bt_class_names, BT_CLASSES, 0);
    const BtClass *class = &bt_classes[s->class];
    s->flow = bt_flow(class->n, class->dt, s->common.threads, s->common.pages, world, &s->arena);
    arena_touch(&s->arena);
    make_forcing(&s->flow);
    if (s->common.corrupt && world->rank == 0) {
        const Cell *cell = &s->flow.cells.cell[0];
        cell->forcing[point_at(cell, cell->begin[X], cell->begin[Y], cell->begin[Z])] += 0.01;
    }
    cells_fill(&s->flow.cells, initial_at);
    return s;
}

static void steps(Bt *s, long count) {
    for (long step = 0; step < count; step++)
        bt_step(&s->flow);
}

static double work_of(const Bt *s, long iterations) {
    double n = bt_classes[s->class].n;
    return (double)iterations * n * (28023.7 - n * (17655.7 - n * 3478.8));
}

/* Run a slice. A unit of work is one time step. */
static void slice(void *state, long units, Slice *out) {
    Bt *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->flow.exchange.seconds = 0;
    double start = now();
    steps(s, units + take_whole(&s->owed, s->common.extra * (double)units));
    double seconds = now() - start;
    one_rate(out, seconds, s->flow.exchange.seconds, work_of(s, units));
}

static void verify(void *state, Verified *v) {
    Bt *s = state;
    int iterations = bt_classes[s->class].iterations;
    cells_fill(&s->flow.cells, initial_at);
    steps(s, 1);
    cells_fill(&s->flow.cells, initial_at);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    steps(s, iterations);
    v->seconds = now() - start;
    v->work = work_of(s, iterations);
    v->ok = bt_check(&s->flow, s->class, &v->expected, &v->found);
}

static void release(void *state) {
    Bt *s = state;
    bt_flow_free(&s->flow);
    arena_free(&s->arena);
    free(s);
}

static const Kernel bt_kernel = {"bt", prepare, slice, verify, release};
LISTED(bt_kernel)
