#include "lu_grid.h"

#include <stdlib.h>

#include "fail.h"
#include "lanes.h"

/* Ranks in i: the largest divisor up to the square root. The diagonals run along j, and a block short in j
   fills its lanes better than one short in i: i gets the fewer. */
static int ranks_in_i(int ranks) {
    int found = 1;
    for (int divisor = 2; divisor * divisor <= ranks; divisor++)
        if (ranks % divisor == 0)
            found = divisor;
    return found;
}

/* The inner points and `around` points around them; every diagonal begins and ends where a full run of lanes
   does. With ghosts around, what full runs of a stencil read beyond a diagonal is the next one: the outermost
   two on either side belong to no stencil. */
static Layout lay_out(const Grid *g, int around) {
    int first = g->ilo + g->jlo - 2 * around, last = g->ihi + g->jhi + 2 * around;
    Layout made = {.lines = calloc((size_t)(last - first + 1), sizeof *made.lines), .first = first};
    if (!made.lines)
        fail("out of memory");
    for (int d = first; d <= last; d++) {
        Span span = grid_span(g, d, around);
        made.lines[d - first] = made.plane - lanes_floor(span.lo);
        made.plane += lanes_floor(span.hi) + LANES - lanes_floor(span.lo);
    }
    return made;
}

Grid lu_grid_make(int n, const World *world) {
    int columns = ranks_in_i(world->size), rows = world->size / columns;
    int column = world->rank % columns, row = world->rank / columns;
    Grid g = {.n = n,
              .west = column > 0 ? world->rank - 1 : MPI_PROC_NULL,
              .east = column < columns - 1 ? world->rank + 1 : MPI_PROC_NULL,
              .north = row > 0 ? world->rank - columns : MPI_PROC_NULL,
              .south = row < rows - 1 ? world->rank + columns : MPI_PROC_NULL,
              .first_i = (int)share_begin(n, column, columns),
              .first_j = (int)share_begin(n, row, rows)};
    g.ni = (int)share_begin(n, column + 1, columns) - g.first_i;
    g.nj = (int)share_begin(n, row + 1, rows) - g.first_j;
    if (g.ni < GHOSTS || g.nj < GHOSTS)
        fail("lu: blocks of %d x %d points of a grid of %d are too thin: use fewer ranks", g.ni, g.nj, n);
    g.ilo = column == 0;
    g.ihi = g.ni - 1 - (column == columns - 1);
    g.jlo = row == 0;
    g.jhi = g.nj - 1 - (row == rows - 1);
    g.whole = lay_out(&g, GHOSTS);
    g.inner = lay_out(&g, 0);
    return g;
}

void lu_grid_free(Grid *grid) {
    free(grid->whole.lines);
    free(grid->inner.lines);
}

size_t layout_need(const Layout *layout, int planes) {
    return (size_t)planes * CFD_FIELDS * (size_t)layout->plane * sizeof(double);
}

double *layout_take(const Layout *layout, int planes, Arena *arena) {
    return arena_take(arena, layout_need(layout, planes));
}
