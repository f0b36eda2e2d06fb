/* How BT's grid is divided among the ranks, and how a rank stores its part.

   On q x q ranks the grid is cut into q x q x q cells and every rank holds q of them, along a diagonal: each
   layer of cells across any axis has one of every rank. A sweep along an axis keeps all ranks at work from
   its first layer to its last, and what it hands on always goes to the same rank. */
#ifndef NEARMETAL_BT_CELLS_H
#define NEARMETAL_BT_CELLS_H

#include "cfd.h"
#include "lanes.h"
#include "pages.h"
#include "world.h"

enum { X, Y, Z, AXES };
enum { GHOSTS = 2 };

/* Points are counted from the cell's own first. Inner points are those off the walls of the grid. In memory
   the planes (k) follow each other, in a plane the fields, in a field the rows (j). A row is one group of
   lanes, of which the last hold what comes before the inner points, and the groups that hold those; what
   comes behind them may lie in the first group of the next row. */
typedef struct {
    int layer[AXES];            /* which of the q along each axis */
    int first[AXES];            /* point in the whole grid */
    int count[AXES];            /* of own points */
    int begin[AXES], end[AXES]; /* inner points: end is behind the last */
    long step[AXES];            /* numbers from a point to the next */
    long field;                 /* from a field of a plane to the next */
    /* The density of point (0, 0, 0). rhs is 0 wherever it is not an inner point. */
    double *u, *rhs, *forcing;
    double *weights; /* of bt_rhs.c */
} Cell;

typedef struct {
    int n;                         /* points of the whole grid along each axis */
    int q;                         /* cells along each axis */
    int before[AXES], after[AXES]; /* ranks that hold the neighbours of every own cell */
    Cell *cell;                    /* q of them */
} Cells;

/* Fails where the ranks are no square or more than the points allow. */
Cells cells_make(int n, const World *world);
void cells_free(Cells *cells);

/* Memory for the fields. */
size_t cells_need(const Cells *cells);
void cells_take(Cells *cells, Arena *arena);

/* The own cell in a layer across an axis. */
Cell *cells_layer(const Cells *cells, int axis, int layer);

static inline int inner_points(const Cell *cell, int axis) {
    return cell->end[axis] - cell->begin[axis];
}

/* The groups of lanes that hold them. */
static inline int inner_groups(const Cell *cell, int axis) {
    return (inner_points(cell, axis) + LANES - 1) / LANES;
}

static inline long point_at(const Cell *cell, int i, int j, int k) {
    return i + j * cell->step[Y] + k * cell->step[Z];
}

/* Numbers in a plane of one field. */
long cells_largest_field(const Cells *cells);

/* Inner points along any axis. */
int cells_longest(const Cells *cells);

/* u of every point, from its place in the unit cube; the ghosts too. What lies outside of the cube only ever
   meets factors of 0: it is made a gas at rest, with which computing is harmless. */
typedef void FieldsAt(double xi, double eta, double zeta, double fields[CFD_FIELDS]);
void cells_fill(const Cells *cells, FieldsAt *fields_at);

#endif
