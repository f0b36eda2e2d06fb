/* Lines along x for the solver of BT. The solver needs neighbouring lines (along y) in the lanes of a vector,
   so rows are transposed to a buffer, and back. */
#ifndef NEARMETAL_BT_TURN_H
#define NEARMETAL_BT_TURN_H

#include "bt_cells.h"
#include "bt_lines.h"

/* Bytes for a bundle with a neighbour before and behind its points. */
size_t turned_bytes(const Cells *cells);

/* Where point p of a field lies in a turned bundle, first group. */
static inline long turned_at(int p, int field) {
    return (p * CFD_FIELDS + field) * BUNDLE;
}

/* Points from x = first on of the lines of a group of a plane (slab), counted among the inner ones. */
void turn_in(const Cell *cell, const double *from, int slab, int group, int first, int points, Lanes *to);

/* The inner points of a group; 0 is written behind them. */
void turn_back(const Cell *cell, double *to, int slab, int group, const Lanes *from);

#endif
