/* The field of FT and its spectrum, divided among the ranks in slabs. A rank owns all points of the field
   with some x, and all points of the spectrum with some y. */
#ifndef NEARMETAL_FT_GRID_H
#define NEARMETAL_FT_GRID_H

#include "ft_fft.h"
#include "pages.h"
#include "world.h"

typedef struct {
    Point *line, *plane;
} Scratch; /* of one thread */

/* Elements are counted in points of LANES numbers. By [index], the last one fastest:
   spectrum [y of this rank][z / LANES][x], lanes along z; all three by place (fft_place);
   transposed [block][x of its rank][y of the block][z / LANES], lanes along z; y and z by place: what one
   rank sends to another of a block is in one piece;
   field: of one x in the places it has in `transposed`, there as if [y / LANES][z], lanes along y. */
typedef struct {
    int size[3], rank, ranks, threads;
    Fft fft[3];        /* from ft_grid_begin() on */
    double *decay[3];  /* by place: their product is what the inverse multiplies the spectrum by */
    long planes, rows; /* x and y of this rank */
    long depth;        /* points along z: nz / LANES */
    long together;     /* rows of a block */
    long blocks;       /* of this rank */
    long piece;        /* points of a block that one rank owns after the exchange */
    bool streamed;     /* spectrum and field are much larger than caches */
    Arena arena;
    Point *spectrum, *field;
    Point *stage;        /* [rank but this][block]: on the way to others, behind the field in one array */
    long *row_at, *z_at; /* in the plane of x = 0: row y begins; element z of the first lines of y */
    long *x_at;          /* in the field and the stage: element x of row 0 of a block, lanes 0 of z */
    Scratch *scratch;    /* by thread */
    MPI_Request *receiving, *sending;
    double owed_lines, owed_planes; /* of parts, not done yet */
    double comm;                    /* seconds in MPI calls since it was last set to 0 */
} Grid;

Grid ft_grid_make(const int size[3], const World *world, int threads, Pages pages);
void ft_grid_free(Grid *grid);

/* Compute the tables, and the spectrum of the first field, which consists of random numbers. Must be called
   before the functions below; may be called again at any time. */
void ft_grid_begin(Grid *grid);

/* Compute the field from the spectrum times `decay`. */
void ft_grid_inverse(Grid *grid);

/* Do a share (0 to 1) of this work. The field is invalid afterwards. */
void ft_grid_inverse_part(Grid *grid, double share);

/* Get the value of the field at a point. Return false if another rank owns the point. */
bool ft_grid_value(const Grid *grid, int x, int y, int z, double value[2]);

#endif
