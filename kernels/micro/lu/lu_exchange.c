#include "lu_exchange.h"

#include <stddef.h>

enum { TO_WEST, TO_EAST, TO_NORTH, TO_SOUTH, SIDES };

/* Return the number of values in one halo: GHOSTS columns or rows of the inner planes. */
static size_t halo_count(const Grid *g, int side) {
    int along = side <= TO_EAST ? g->jhi - g->jlo + 1 : g->ihi - g->ilo + 1;
    return (size_t)GHOSTS * CFD_FIELDS * (size_t)along * (size_t)(g->n - 2);
}

static size_t halo_room(const Grid *g) {
    return 2 * (halo_count(g, TO_WEST) + halo_count(g, TO_NORTH)) * sizeof(double);
}

static size_t box_room(const Grid *g) {
    return (size_t)CFD_FIELDS * (size_t)(g->ni + g->nj) * sizeof(double);
}

size_t lu_exchange_need(const Grid *grid) {
    return 2 * arena_need(halo_room(grid)) + 3 * arena_need(box_room(grid));
}

Exchange lu_exchange_make(const Grid *grid, Arena *arena) {
    Exchange e = {.out = arena_take(arena, halo_room(grid)),
                  .in = arena_take(arena, halo_room(grid)),
                  .inbox = arena_take(arena, box_room(grid))};
    for (int which = 0; which < 2; which++) {
        double *room = arena_take(arena, box_room(grid));
        e.outbox[which] = (Outbox){.along_j = room,
                                   .along_i = room + CFD_FIELDS * grid->nj,
                                   .request = {MPI_REQUEST_NULL, MPI_REQUEST_NULL}};
    }
    return e;
}

static int neighbour(const Grid *g, int side) {
    return (const int[SIDES]){g->west, g->east, g->north, g->south}[side];
}

/* Copy a column or row to a message (out) or from it. line: its index, from 0. */
static double *copy_line(const Grid *g, double *u, int k, int side, int line, double *box, bool out) {
    bool column = side <= TO_EAST;
    int lo = column ? g->jlo : g->ilo, hi = column ? g->jhi : g->ihi;
    for (int m = 0; m < CFD_FIELDS; m++) {
        double *field = layout_field(&g->whole, u, k, m);
        for (int along = lo; along <= hi; along++, box++) {
            double *at =
                field + (column ? layout_at(&g->whole, line, along) : layout_at(&g->whole, along, line));
            if (out)
                *box = *at;
            else
                *at = *box;
        }
    }
    return box;
}

/* Copy the two lines next to a border: this rank's own lines to a message, or a message to the ghosts. */
static void copy_halo(const Grid *g, double *u, int side, double *box, bool out) {
    int own[SIDES] = {0, g->ni - GHOSTS, 0, g->nj - GHOSTS}, ghost[SIDES] = {-GHOSTS, g->ni, -GHOSTS, g->nj};
    int first = out ? own[side] : ghost[side];
    for (int k = 1; k <= g->n - 2; k++)
        for (int line = first; line < first + GHOSTS; line++)
            box = copy_line(g, u, k, side, line, box, out);
}

void lu_exchange_halo(Exchange *e, const Grid *g, double *u) {
    MPI_Request request[2 * SIDES];
    double *out = e->out, *in = e->in, *arrived[SIDES];
    int count[SIDES];
    for (int side = 0; side < SIDES; side++) {
        count[side] = neighbour(g, side) == MPI_PROC_NULL ? 0 : (int)halo_count(g, side);
        arrived[side] = in;
        in += count[side];
        MPI_TIMED(e->seconds, MPI_Irecv(arrived[side], count[side], MPI_DOUBLE, neighbour(g, side), side ^ 1,
                                        MPI_COMM_WORLD, &request[side]));
    }
    for (int side = 0; side < SIDES; out += count[side++]) {
        if (count[side])
            copy_halo(g, u, side, out, true);
        MPI_TIMED(e->seconds, MPI_Isend(out, count[side], MPI_DOUBLE, neighbour(g, side), side,
                                        MPI_COMM_WORLD, &request[SIDES + side]));
    }
    MPI_TIMED(e->seconds, MPI_Waitall(2 * SIDES, request, MPI_STATUSES_IGNORE));
    for (int side = 0; side < SIDES; side++)
        if (count[side])
            copy_halo(g, u, side, arrived[side], false);
}

void wave_receive(Exchange *e, const Grid *g, bool forward, double *incoming) {
    int before_i = forward ? g->west : g->east, before_j = forward ? g->north : g->south;
    int i = forward ? g->ilo : g->ihi, j = forward ? g->jlo : g->jhi;
    double *along_j = e->inbox, *along_i = e->inbox + CFD_FIELDS * g->nj;
    if (before_i != MPI_PROC_NULL) {
        MPI_TIMED(e->seconds, MPI_Recv(along_j, CFD_FIELDS * g->nj, MPI_DOUBLE, before_i, SIDES,
                                       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int m = 0; m < CFD_FIELDS; m++)
            for (int other = g->jlo; other <= g->jhi; other++)
                incoming[m * g->inner.plane + layout_at(&g->inner, i, other)] += along_j[m * g->nj + other];
    }
    if (before_j != MPI_PROC_NULL) {
        MPI_TIMED(e->seconds, MPI_Recv(along_i, CFD_FIELDS * g->ni, MPI_DOUBLE, before_j, SIDES + 1,
                                       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int m = 0; m < CFD_FIELDS; m++)
            for (int other = g->ilo; other <= g->ihi; other++)
                incoming[m * g->inner.plane + layout_at(&g->inner, other, j)] += along_i[m * g->ni + other];
    }
}

/* Return the outbox of a plane, after its previous message has been sent. */
Outbox *wave_outbox(Exchange *e, int plane) {
    Outbox *box = &e->outbox[plane & 1];
    if (box->request[0] != MPI_REQUEST_NULL || box->request[1] != MPI_REQUEST_NULL)
        MPI_TIMED(e->seconds, MPI_Waitall(2, box->request, MPI_STATUSES_IGNORE));
    return box;
}

void wave_send(Exchange *e, const Grid *g, bool forward, Outbox *box) {
    int after_i = forward ? g->east : g->west, after_j = forward ? g->south : g->north;
    if (after_i != MPI_PROC_NULL)
        MPI_TIMED(e->seconds, MPI_Isend(box->along_j, CFD_FIELDS * g->nj, MPI_DOUBLE, after_i, SIDES,
                                        MPI_COMM_WORLD, &box->request[0]));
    if (after_j != MPI_PROC_NULL)
        MPI_TIMED(e->seconds, MPI_Isend(box->along_i, CFD_FIELDS * g->ni, MPI_DOUBLE, after_j, SIDES + 1,
                                        MPI_COMM_WORLD, &box->request[1]));
}

void wave_end(Exchange *e) {
    wave_outbox(e, 0);
    wave_outbox(e, 1);
}
