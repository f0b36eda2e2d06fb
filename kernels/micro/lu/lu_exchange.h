/* LU's messages: the halo of u, and the data that the sweeps pass from rank to rank in each plane. */
#ifndef NEARMETAL_LU_EXCHANGE_H
#define NEARMETAL_LU_EXCHANGE_H

#include "lu_grid.h"

/* The data that a sweep passes on from a plane: by field, for every j and every i of this rank. */
typedef struct {
    double *along_j, *along_i;
    MPI_Request request[2];
} Outbox;

typedef struct {
    double *out, *in; /* halos of all neighbours */
    Outbox outbox[2]; /* in turn */
    double *inbox;
    double seconds; /* in MPI calls since it was last set to 0 */
} Exchange;

size_t lu_exchange_need(const Grid *grid);
Exchange lu_exchange_make(const Grid *grid, Arena *arena);

/* Exchange the ghosts of planes 1 to n - 2. */
void lu_exchange_halo(Exchange *exchange, const Grid *grid, double *u);

/* The messages of a sweep, forward (i, j, k ascending) or back. wave_receive() is called before a plane, and
   adds the data of the previous neighbours to `incoming`. After the plane, its own data are sent. */
void wave_receive(Exchange *exchange, const Grid *grid, bool forward, double *incoming);
Outbox *wave_outbox(Exchange *exchange, int plane);
void wave_send(Exchange *exchange, const Grid *grid, bool forward, Outbox *outbox);
void wave_end(Exchange *exchange);

#endif
