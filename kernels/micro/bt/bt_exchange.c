#include "bt_exchange.h"

#include <limits.h>

#include "fail.h"

enum { BEFORE, BEHIND, SIDES };

/* All cells of the rank, the layer at the wall as well, which is not sent: an upper bound. */
static size_t halo_numbers(const Cells *cells, int axis) {
    size_t numbers = 0;
    for (int s = 0; s < cells->q; s++) {
        const int *count = cells->cell[s].count;
        numbers += (size_t)count[(axis + 1) % AXES] * (size_t)count[(axis + 2) % AXES];
    }
    return numbers * GHOSTS * CFD_FIELDS;
}

size_t bt_exchange_need(const Cells *cells, size_t largest) {
    if (cells->q == 1)
        return 0;
    size_t need = 2 * arena_need(largest);
    for (int axis = 0; axis < AXES; axis++)
        need += 2 * SIDES * arena_need(halo_numbers(cells, axis) * sizeof(double));
    return need;
}

Exchange bt_exchange_make(const Cells *cells, size_t largest, Arena *arena) {
    Exchange e = {.seconds = 0};
    if (cells->q == 1)
        return e;
    if (largest > INT_MAX)
        fail("bt: messages of %zu bytes", largest);
    for (int axis = 0; axis < AXES; axis++)
        for (int side = 0; side < SIDES; side++) {
            size_t bytes = halo_numbers(cells, axis) * sizeof(double);
            e.out[axis][side] = arena_take(arena, bytes);
            e.in[axis][side] = arena_take(arena, bytes);
        }
    e.sent = arena_take(arena, largest);
    e.received = arena_take(arena, largest);
    return e;
}

/* Copies GHOSTS layers of points across an axis, from layer `from` on: all fields, to or from a message.
   Returns its end. */
static double *copy_layers(const Cell *cell, int axis, int from, bool pack, double *message) {
    int begin[AXES] = {0, 0, 0}, end[AXES] = {cell->count[X], cell->count[Y], cell->count[Z]};
    begin[axis] = from;
    end[axis] = from + GHOSTS;
    for (int k = begin[Z]; k < end[Z]; k++)
        for (int m = 0; m < CFD_FIELDS; m++)
            for (int j = begin[Y]; j < end[Y]; j++) {
                double *row = cell->u + point_at(cell, 0, j, k) + m * cell->field;
                for (int i = begin[X]; i < end[X]; i++)
                    if (pack)
                        *message++ = row[i];
                    else
                        row[i] = *message++;
            }
    return message;
}

/* The halos of all cells that have a neighbour at a side. They leave in the order of the cells of the sender,
   which is that of the receiver too but along z, where the neighbour's are one cell off and none is at the
   wall of both. Returns how many numbers they are. */
static int copy_halos(const Cells *cells, int axis, int side, bool pack, double *message) {
    double *at = message;
    for (int s = 0; s < cells->q; s++) {
        const Cell *cell = &cells->cell[s];
        if (cell->layer[axis] == (side == BEFORE ? 0 : cells->q - 1))
            continue;
        int outside = side == BEFORE ? -GHOSTS : cell->count[axis];
        int inside = side == BEFORE ? 0 : cell->count[axis] - GHOSTS;
        at = copy_layers(cell, axis, pack ? inside : outside, pack, at);
    }
    return (int)(at - message);
}

void bt_exchange_halo(Exchange *e, const Cells *cells) {
    enum { MESSAGES = AXES * SIDES };
    if (cells->q == 1)
        return;
    MPI_Request request[2 * MESSAGES];
    for (int message = 0; message < MESSAGES; message++) {
        int axis = message / SIDES, side = message % SIDES;
        int rank = side == BEFORE ? cells->before[axis] : cells->after[axis];
        /* What comes from behind was sent to the side before: two ranks may be each other's on both sides. */
        int tag_out = message, tag_in = message ^ 1;
        MPI_TIMED(e->seconds, MPI_Irecv(e->in[axis][side], (int)halo_numbers(cells, axis), MPI_DOUBLE, rank,
                                        tag_in, MPI_COMM_WORLD, &request[message]));
        int numbers = copy_halos(cells, axis, side, true, e->out[axis][side]);
        MPI_TIMED(e->seconds, MPI_Isend(e->out[axis][side], numbers, MPI_DOUBLE, rank, tag_out,
                                        MPI_COMM_WORLD, &request[MESSAGES + message]));
    }
    MPI_TIMED(e->seconds, MPI_Waitall(2 * MESSAGES, request, MPI_STATUSES_IGNORE));
    for (int message = 0; message < MESSAGES; message++)
        copy_halos(cells, message / SIDES, message % SIDES, false, e->in[message / SIDES][message % SIDES]);
}

void bt_hand_on(Exchange *e, const Cells *cells, int axis, bool back, size_t sent, size_t received) {
    int to = back ? cells->before[axis] : cells->after[axis];
    int from = back ? cells->after[axis] : cells->before[axis];
    MPI_TIMED(e->seconds, MPI_Sendrecv(e->sent, (int)sent, MPI_BYTE, to, 0, e->received, (int)received,
                                       MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}
