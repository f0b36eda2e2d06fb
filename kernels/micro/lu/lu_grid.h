/* How LU's grid is divided among the ranks, and how a rank stores its block.

   The ranks divide i and j; each holds all planes k. A sweep over a plane can compute all points of a
   diagonal i + j = d at the same time. So a plane is stored by diagonals, each in ascending order of j, and
   padded such that every j that is a multiple of LANES is aligned. The neighbours of consecutive points are
   then consecutive too: (i - 1, j) is at the same j of diagonal d - 1, (i, j - 1) one before it, and so on.
 */
#ifndef NEARMETAL_LU_GRID_H
#define NEARMETAL_LU_GRID_H

#include "cfd.h"
#include "pages.h"
#include "world.h"

enum { GHOSTS = 2 };

/* The layout of a plane of one field. */
typedef struct {
    long plane;  /* numbers */
    long *lines; /* of each diagonal from d = first on: where its j = 0 lies, stored or not */
    int first;
} Layout;

typedef struct {
    int n;                        /* points of the whole grid in each direction */
    int west, east, north, south; /* ranks at i - 1, i + 1, j - 1, j + 1; MPI_PROC_NULL behind a wall */
    int first_i, first_j;         /* of the own points in the whole grid */
    int ni, nj;                   /* own points */
    int ilo, ihi, jlo, jhi;       /* the inner ones, off the walls; ends included, from the own first on */
    Layout whole, inner;          /* whole: own points and ghosts; inner: the inner points alone */
} Grid;

Grid lu_grid_make(int n, const World *world);
void lu_grid_free(Grid *grid);

/* All fields of `planes` planes: layout_need() returns their bytes, layout_take() takes their memory. */
size_t layout_need(const Layout *layout, int planes);
double *layout_take(const Layout *layout, int planes, Arena *arena);

static inline long layout_line(const Layout *layout, int d) {
    return layout->lines[d - layout->first];
}

static inline long layout_at(const Layout *layout, int i, int j) {
    return layout_line(layout, i + j) + j;
}

/* Return field m of a plane. plane: counted from the first stored plane. */
static inline double *layout_field(const Layout *layout, double *array, int plane, int m) {
    return array + ((long)plane * CFD_FIELDS + m) * layout->plane;
}

/* The range of j of diagonal d among the inner points, and `around` points around them. */
typedef struct {
    int lo, hi;
} Span;

static inline Span grid_span(const Grid *grid, int d, int around) {
    int lo = grid->jlo - around, hi = grid->jhi + around;
    int from = d - grid->ihi - around, to = d - grid->ilo + around;
    return (Span){lo > from ? lo : from, hi < to ? hi : to};
}

#endif
