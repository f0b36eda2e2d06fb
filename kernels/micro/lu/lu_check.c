/* The verification of LU: norms over the inner points, and an integral over faces inside the cube. */
#include <math.h>

#include "lu.h"

static void sum_over_ranks(double *values, int count) {
    MPI(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

/* Root of the mean over the inner points of (of - exact)^2, or of of^2. of: its plane 1. */
static void norm_of(const Flow *f, const Layout *layout, double *of, bool less_exact,
                    double norm[CFD_FIELDS]) {
    const Grid *g = &f->grid;
    double over_n = 1.0 / (g->n - 1), points = pow(g->n - 2, 3);
    for (int m = 0; m < CFD_FIELDS; m++)
        norm[m] = 0;
    for (int k = 1; k < g->n - 1; k++)
        for (int j = g->jlo; j <= g->jhi; j++)
            for (int i = g->ilo; i <= g->ihi; i++) {
                double exact[CFD_FIELDS] = {0};
                if (less_exact)
                    cfd_exact((g->first_i + i) * over_n, (g->first_j + j) * over_n, k * over_n, exact);
                for (int m = 0; m < CFD_FIELDS; m++) {
                    double d = layout_field(layout, of, k - 1, m)[layout_at(layout, i, j)] - exact[m];
                    norm[m] += d * d;
                }
            }
    sum_over_ranks(norm, CFD_FIELDS);
    for (int m = 0; m < CFD_FIELDS; m++)
        norm[m] = sqrt(norm[m] / points);
}

void lu_residual_norm(Flow *flow, double norm[CFD_FIELDS]) {
    norm_of(flow, &flow->grid.inner, flow->residual, false, norm);
}

void lu_error_norm(Flow *flow, double norm[CFD_FIELDS]) {
    norm_of(flow, &flow->grid.whole, layout_field(&flow->grid.whole, flow->u, 1, 0), true, norm);
}

static double pressure_at(const Flow *f, int i, int j, int k) {
    double u[CFD_FIELDS];
    for (int m = 0; m < CFD_FIELDS; m++)
        u[m] = layout_field(&f->grid.whole, f->u, k, m)[layout_at(&f->grid.whole, i, j)];
    return cfd_c2 * (u[4] - 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]);
}

/* The pressure over the six faces of a box inside the cube, by the trapezoidal rule; of the three directions
   the mean of half a face each. */
double lu_surface_integral(Flow *flow) {
    const Grid *g = &flow->grid;
    const int from[3] = {1, 1, 2}, to[3] = {g->n - 2, g->n - 3, g->n - 2};
    double sum = 0;
    for (int k = from[2]; k <= to[2]; k++)
        for (int j = g->jlo; j <= g->jhi; j++)
            for (int i = g->ilo; i <= g->ihi; i++) {
                int at[3] = {g->first_i + i, g->first_j + j, k};
                bool end[3];
                for (int n = 0; n < 3; n++)
                    end[n] = at[n] == from[n] || at[n] == to[n];
                if (at[0] > to[0] || at[1] > to[1] || !(end[0] || end[1] || end[2]))
                    continue;
                double pressure = pressure_at(flow, i, j, k);
                for (int n = 0; n < 3;
                     n++) /* corners of cells: an end of an edge counts once, others twice */
                    if (end[n])
                        sum += pressure * (end[(n + 1) % 3] ? 1 : 2) * (end[(n + 2) % 3] ? 1 : 2);
            }
    sum_over_ranks(&sum, 1);
    return 0.25 * sum / ((g->n - 1.0) * (g->n - 1.0));
}
