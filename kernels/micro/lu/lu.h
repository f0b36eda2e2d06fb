/* The parts of LU (RNR-94-007, section 4.2: symmetric successive over-relaxation). Fields are arrays with the
   layouts of lu_grid.h. */
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

/* Return the bytes of `edge`, which only the sweeps use. */
size_t edge_need(const Grid *grid);

size_t flow_need(const Grid *grid);
Flow flow_make(const Grid *grid, double dt, Arena *arena);

/* Set the values on the walls, the initial values between them, and the forcing. */
void flow_begin(Flow *flow);

/* The phases of an iteration process planes 1 to `planes`; flow_planes() returns the number of all inner
   planes. The residual needs the halo of u. */
static inline int flow_planes(const Flow *flow) {
    return flow->grid.n - 2;
}
void compute_residual(Flow *flow, int planes);
void lower_sweep(Flow *flow, int planes);
/* u += relaxation * correction */
void upper_sweep(Flow *flow, int planes, double relaxation);

/* Compute the root mean square over all inner points, by field: of the residual, and of the error. The
   results are the same on every rank. */
void lu_residual_norm(Flow *flow, double norm[CFD_FIELDS]);
void lu_error_norm(Flow *flow, double norm[CFD_FIELDS]);
double lu_surface_integral(Flow *flow);

#endif
