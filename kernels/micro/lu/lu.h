/* The parts of LU (RNR-94-007, section 4.2: symmetric successive over-relaxation). A field is an array of
   lu_grid.h. */
#ifndef NEARMETAL_LU_H
#define NEARMETAL_LU_H

#include "lu_exchange.h"
#include "lu_grid.h"

#define INLINE static inline __attribute__((always_inline))

enum { SCRATCH = 3 };

/* omega */
static const double lu_relaxation = 1.2;

typedef struct {
    Grid grid;
    double dt;
    double *u;                  /* all planes, the whole layout */
    double *residual, *forcing; /* planes 1 to n - 2, the inner layout; residual: after lower_sweep() v */
    double *scratch;            /* SCRATCH planes: what the right-hand side needs of each point */
    double *incoming;           /* one plane: what the sweep has brought to points not reached yet */
    double *edge;               /* what the diagonal before the current one hands on */
    double *walls;              /* by point of a plane: how many walls are next to it */
    Exchange exchange;
} Flow;

/* Bytes of `edge`, which the sweeps alone know. */
size_t edge_need(const Grid *grid);

size_t flow_need(const Grid *grid);
Flow flow_make(const Grid *grid, double dt, Arena *arena);

/* The walls, forcing and initial values between them. */
void flow_begin(Flow *flow);

/* The phases of an iteration, over planes 1 to `planes`; all the inner ones are flow_planes(). The residual
   needs the halo of u. */
static inline int flow_planes(const Flow *flow) {
    return flow->grid.n - 2;
}
void compute_residual(Flow *flow, int planes);
void lower_sweep(Flow *flow, int planes);
/* u += relaxation * correction */
void upper_sweep(Flow *flow, int planes, double relaxation);

/* The same on every rank. Root mean square over the inner points, by field: */
void lu_residual_norm(Flow *flow, double norm[CFD_FIELDS]);
void lu_error_norm(Flow *flow, double norm[CFD_FIELDS]);
double lu_surface_integral(Flow *flow);

#endif
