/* How BT's grid is divided among the ranks, and how a rank stores its part.

   On q x q ranks the grid is divided into q x q x q cells, and every rank holds q of them along a diagonal:
   each layer of cells across any axis contains one cell of every rank. So all ranks work during a whole sweep
   along an axis, and a rank always sends to the same neighbour. */
#ifndef NEARMETAL_BT_CELLS_H
#define NEARMETAL_BT_CELLS_H

#include "cfd.h"
#include "lanes.h"
#include "pages.h"
#include "world.h"

enum { X, Y, Z, AXES };
enum { GHOSTS = 2 };

/* Points are numbered from the first point of the cell. Inner points are those that are not on the walls of
   the grid. In memory, an array consists of planes (k), a plane of fields, and a field of rows (j). A row
   begins with one group of lanes, whose last lanes hold the points before the inner points; then follow the
   groups with the inner points. Points after these may be in the first group of the next row. */
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

/* Divide the grid among the ranks. Fails if their number is not a square, or too large for the grid. */
Cells cells_make(int n, const World *world);
void cells_free(Cells *cells);

/* Return the bytes that the fields need. */
size_t cells_need(const Cells *cells);
void cells_take(Cells *cells, Arena *arena);

/* Return this rank's cell in a layer across an axis. */
Cell *cells_layer(const Cells *cells, int axis, int layer);

static inline int inner_points(const Cell *cell, int axis) {
    return cell->end[axis] - cell->begin[axis];
}

/* Return the number of groups of lanes that the inner points take along an axis. */
static inline int inner_groups(const Cell *cell, int axis) {
    return (inner_points(cell, axis) + LANES - 1) / LANES;
}

static inline long point_at(const Cell *cell, int i, int j, int k) {
    return i + j * cell->step[Y] + k * cell->step[Z];
}

/* Return the largest number of values in a plane of one field, over all cells. */
long cells_largest_field(const Cells *cells);

/* Return the largest number of inner points along any axis, over all cells. */
int cells_longest(const Cells *cells);

/* Set u at every point, including ghosts, from the point's position in the unit cube. Points outside of the
   cube are only multiplied by 0; they get the values of a gas at rest, which cause no invalid operations. */
typedef void FieldsAt(double xi, double eta, double zeta, double fields[CFD_FIELDS]);
void cells_fill(const Cells *cells, FieldsAt *fields_at);

#endif
