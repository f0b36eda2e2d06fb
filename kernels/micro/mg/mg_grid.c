/* Grids of MG: layout, halo exchange, and the gathering of small ones. */
#include "mg_grid.h"

#include <string.h>

enum { STAGGER = 18 * 64 }; /* bytes, whole cache lines */

/* z first: planes lie in one piece, and up to four ranks send no more than with any other cut. */
Cut cut_make(const World *world) {
    Cut cut = {.planes = 1, .rows = 1};
    while (cut.planes * cut.rows < world->size)
        if (cut.planes <= 2 * cut.rows)
            cut.planes *= 2;
        else
            cut.rows *= 2;
    cut.plane = cut_plane(&cut, world->rank);
    cut.row = cut_row(&cut, world->rank);
    for (int up = 0; up < 2; up++) {
        int plane = (cut.plane + (up ? 1 : cut.planes - 1)) % cut.planes;
        int line = (cut.row + (up ? 1 : cut.rows - 1)) % cut.rows;
        cut.z_neighbour[up] = plane * cut.rows + cut.row;
        cut.y_neighbour[up] = cut.plane * cut.rows + line;
    }
    return cut;
}

Grid mg_grid_plan(long n, const Cut *cut, int halo) {
    long planes = cut ? cut->planes : 1, rows = cut ? cut->rows : 1;
    Grid g = {.nx = n, .ny = n / rows, .nz = n / planes, .line = n, .halo = halo, .rows = MPI_DATATYPE_NULL};
    g.z_shift = planes > 1 ? halo : 0;
    g.y_shift = rows > 1 ? halo : 0;
    g.z_mask = planes > 1 ? -1 : n - 1;
    g.y_mask = rows > 1 ? -1 : n - 1;
    g.plane = g.line * (g.ny + 2 * g.y_shift);
    if (halo > 0 && rows > 1) {
        MPI(MPI_Type_vector((int)(g.nz + 2 * g.z_shift), (int)(halo * g.line), (int)g.plane, MPI_DOUBLE,
                            &g.rows));
        MPI(MPI_Type_commit(&g.rows));
    }
    return g;
}

size_t mg_grid_bytes(const Grid *g) {
    return (size_t)(g->plane * (g->nz + 2 * g->z_shift)) * sizeof(double);
}

void mg_grid_take(Grid *g, Arena *arena) {
    g->data = arena_take(arena, mg_grid_bytes(g));
}

/* Grids of 2^k bytes after each other would all lie at the same offset within a page of 4 KiB. */
size_t mg_grid_need(const Grid *g) {
    return mg_grid_bytes(g) + STAGGER;
}

void mg_grid_put(Grid *g, char **memory) {
    g->data = (double *)*memory;
    *memory += mg_grid_need(g);
}

void mg_grid_free(Grid *g) {
    if (g->rows != MPI_DATATYPE_NULL)
        MPI(MPI_Type_free(&g->rows));
}

/* Both neighbours may be the same rank: what travels up has tag 1, what travels down tag 0. */
static void trade(double *send[2], double *receive[2], int count, MPI_Datatype type, const int neighbour[2]) {
    MPI_Request request[4];
    for (int up = 0; up < 2; up++)
        MPI(MPI_Irecv(receive[up], count, type, neighbour[up], !up, MPI_COMM_WORLD, &request[up]));
    for (int up = 0; up < 2; up++)
        MPI(MPI_Isend(send[up], count, type, neighbour[up], up, MPI_COMM_WORLD, &request[2 + up]));
    MPI(MPI_Waitall(4, request, MPI_STATUSES_IGNORE));
}

/* Whole planes first, the rows of the halo planes are in the second step: so the corners come along. */
void mg_grid_exchange(const Grid *g, const Cut *cut, double *seconds) {
    if (cut->planes * cut->rows == 1)
        return;
    double begin = now();
    if (cut->planes > 1) {
        double *send[2] = {g->data + g->halo * g->plane, g->data + g->nz * g->plane};
        double *receive[2] = {g->data, g->data + (g->nz + g->halo) * g->plane};
        trade(send, receive, (int)(g->halo * g->plane), MPI_DOUBLE, cut->z_neighbour);
    }
    if (cut->rows > 1) {
        double *send[2] = {g->data + g->halo * g->line, g->data + g->ny * g->line};
        double *receive[2] = {g->data, g->data + (g->ny + g->halo) * g->line};
        trade(send, receive, 1, g->rows, cut->y_neighbour);
    }
    *seconds += now() - begin;
}

void mg_grid_gather(const Grid *part, double *all, const Grid *whole, const Cut *cut, double *seconds) {
    int count = (int)(part->nz * part->plane);
    MPI_TIMED(*seconds, MPI_Allgather(part->data, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD));
    for (int rank = 0; rank < cut->planes * cut->rows; rank++)
        for (long z = 0; z < part->nz; z++) {
            double *to = row(whole, cut_plane(cut, rank) * part->nz + z, cut_row(cut, rank) * part->ny);
            memcpy(to, all + rank * count + z * part->plane, (size_t)part->plane * sizeof *to);
        }
}

Grid mg_grid_view(const Grid *whole, const Grid *part, const Cut *cut) {
    Grid view = *whole;
    view.z_shift += cut->plane * part->nz;
    view.y_shift += cut->row * part->ny;
    return view;
}
