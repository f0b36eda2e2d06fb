/* BT's right-hand side: the change of u in a time step by the equations of the flow and the forcing. */
#ifndef NEARMETAL_BT_RHS_H
#define NEARMETAL_BT_RHS_H

#include "bt_cells.h"

/* Factors of differences over a grid of n points, times the time step. */
typedef struct {
    double flux;         /* of central differences */
    double viscous;      /* of second differences: velocities, energy */
    double spread[AXES]; /* of all fields */
    double fourth;       /* of fourth differences of all fields */
} RhsFactors;

RhsFactors rhs_factors(int n, double dt);

/* Return the bytes for the weights of the stencils of all cells. */
size_t rhs_weights_need(const Cells *cells);
void rhs_weights(const Cells *cells, const RhsFactors *factors, Arena *arena);

/* Return the bytes of a worker's memory: the derived quantities of three planes, which the stencils of
   neighbouring points use. */
size_t rhs_derived_need(const Cells *cells);

/* Prepare to compute planes k in ascending order, from plane k on. */
void rhs_begin(const Cell *cell, double *derived, int k);
/* Compute the next plane. */
void rhs_plane(const Cells *cells, const Cell *cell, const RhsFactors *factors, double *derived, int k);

#endif
