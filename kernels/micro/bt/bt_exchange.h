/* BT's messages: the halo of u, and what a sweep hands on from one layer of cells to the next. */
#ifndef NEARMETAL_BT_EXCHANGE_H
#define NEARMETAL_BT_EXCHANGE_H

#include "bt_cells.h"

typedef struct {
    double *out[AXES][2], *in[AXES][2]; /* halos, to and from the neighbours before and behind */
    char *sent, *received;              /* what is handed on */
    double seconds;                     /* in MPI calls since it was last set to 0 */
} Exchange;

/* largest: bytes that a sweep hands on at once. All of it is nothing on one rank. */
size_t bt_exchange_need(const Cells *cells, size_t largest);
Exchange bt_exchange_make(const Cells *cells, size_t largest, Arena *arena);

/* The ghosts of u across each face; not those beyond edges, which nobody reads. */
void bt_exchange_halo(Exchange *exchange, const Cells *cells);

/* `sent` of one layer to the neighbour before or behind along an axis, what its other neighbour sent for the
   next layer into `received`. */
void bt_hand_on(Exchange *exchange, const Cells *cells, int axis, bool back, size_t sent, size_t received);

#endif
