/* BT's messages: the halo of u, and the data that a sweep passes from one layer of cells to the next. */
#ifndef NEARMETAL_BT_EXCHANGE_H
#define NEARMETAL_BT_EXCHANGE_H

#include "bt_cells.h"

typedef struct {
    double *out[AXES][2], *in[AXES][2]; /* halos, to and from the neighbours before and behind */
    char *sent, *received;              /* data of a sweep for the next layer */
    double seconds;                     /* in MPI calls since it was last set to 0 */
} Exchange;

/* Return the bytes that the messages need; 0 on one rank. largest: size of the largest message of a sweep. */
size_t bt_exchange_need(const Cells *cells, size_t largest);
Exchange bt_exchange_make(const Cells *cells, size_t largest, Arena *arena);

/* Exchange the ghosts of u across each face. Ghosts across edges are not exchanged, since nothing reads them.
 */
void bt_exchange_halo(Exchange *exchange, const Cells *cells);

/* Send the data of one layer to the neighbour before (back) or behind along an axis, and receive those of the
   other neighbour for the next layer. sent, received: bytes; the data are in exchange->sent and
   exchange->received. */
void bt_hand_on(Exchange *exchange, const Cells *cells, int axis, bool back, size_t sent, size_t received);

#endif
