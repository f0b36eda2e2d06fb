/* A time step of BT: the right-hand side, then a sweep for each of the three factors of the approximate
 * factorisation. */
#ifndef NEARMETAL_BT_SWEEP_H
#define NEARMETAL_BT_SWEEP_H

#include "bt_cells.h"
#include "bt_exchange.h"
#include "bt_lines.h"
#include "bt_rhs.h"

/* The memory of one thread. */
typedef struct {
    double *derived; /* of bt_rhs.c */
    Lanes *u, *rhs;  /* of a bundle along x, turned so that its lines are lanes */
    Kept *kept;      /* of a bundle whose lines end in the cell */
} Worker;

typedef struct {
    Cells cells;
    double dt;
    RhsFactors rhs;
    LineFactors lines[AXES];
    Exchange exchange;
    int threads;
    Worker *worker;
    Kept *kept; /* of all cells whose lines go on in another */
} Flow;

/* Create the flow. Fails if the number of ranks does not fit; see cells_make(). */
Flow bt_flow(int n, double dt, int threads, Pages pages, const World *world, Arena *arena);
void bt_flow_free(Flow *flow);

/* Compute the right-hand side, times dt, at all inner points. */
void bt_residual(Flow *flow);

void bt_step(Flow *flow);

#endif
