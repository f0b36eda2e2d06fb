/* BT's right-hand side: the change of u in a time step that the flow's equations and the forcing call for. */
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

/* Weights of the stencils, by cell. */
size_t rhs_weights_need(const Cells *cells);
void rhs_weights(const Cells *cells, const RhsFactors *factors, Arena *arena);

/* A worker's memory: what the points of three planes are asked for by their neighbours. */
size_t rhs_derived_need(const Cells *cells);

/* Before the first of several planes k in ascending order, ... */
void rhs_begin(const Cell *cell, double *derived, int k);
/* ... and each of them. */
void rhs_plane(const Cells *cells, const Cell *cell, const RhsFactors *factors, double *derived, int k);

#endif
