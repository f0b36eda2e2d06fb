/* Grids of MG, and their division among the ranks: across z and y, never across x, so that rows are complete
   and periodic. */
#ifndef NEARMETAL_MG_GRID_H
#define NEARMETAL_MG_GRID_H

#include "pages.h"
#include "world.h"

/* The arrangement of the ranks as planes x rows, the position of this rank, and its neighbours below and
   above in both directions. */
typedef struct {
    int planes, rows;
    int plane, row;
    int z_neighbour[2], y_neighbour[2];
} Cut;

Cut cut_make(const World *world);

/* Return the position of a rank in the arrangement of cut_make(). */
static inline int cut_plane(const Cut *cut, int rank) {
    return rank / cut->rows;
}

static inline int cut_row(const Cut *cut, int rank) {
    return rank % cut->rows;
}

/* The part of one rank: ny x nz rows of nx points, with `halo` rows or planes of the neighbours on both sides
   of each direction that is cut. In a direction that is not cut the grid is periodic: no copies, the row
   numbers wrap around by the mask. */
typedef struct {
    double *data;
    long nx, ny, nz;
    long line, plane; /* doubles from a row to the next, from a plane to the next */
    int halo;
    long z_shift, y_shift, z_mask, y_mask;
    MPI_Datatype rows; /* `halo` rows of every plane; MPI_DATATYPE_NULL where y is not cut */
} Grid;

static inline double *row(const Grid *g, long z, long y) {
    return g->data + ((z + g->z_shift) & g->z_mask) * g->plane + ((y + g->y_shift) & g->y_mask) * g->line;
}

/* Return a grid without memory. n: points in each direction of the whole grid; cut: NULL for the whole grid.
 */
Grid mg_grid_plan(long n, const Cut *cut, int halo);

size_t mg_grid_bytes(const Grid *g);
void mg_grid_take(Grid *g, Arena *arena);

/* The same for many small grids in one piece of memory, which has room for the sum of mg_grid_need(). */
size_t mg_grid_need(const Grid *g);
void mg_grid_put(Grid *g, char **memory);

void mg_grid_free(Grid *g);

/* Exchange the halo with the neighbours: rows, planes and corners. The time is added to *seconds. */
void mg_grid_exchange(const Grid *g, const Cut *cut, double *seconds);

/* Gather the whole grid from the parts of all ranks, on every rank. all: room for the whole grid. */
void mg_grid_gather(const Grid *part, double *all, const Grid *whole, const Cut *cut, double *seconds);

/* Return the whole grid with indices relative to a rank's part: row 0 is the first row of the part. */
Grid mg_grid_view(const Grid *whole, const Grid *part, const Cut *cut);

#endif
