/* LU's messages: the halo of u, and what the sweeps hand on from rank to rank, plane by plane. */
#ifndef NEARMETAL_LU_EXCHANGE_H
#define NEARMETAL_LU_EXCHANGE_H

#include "lu_grid.h"

/* What leaves a plane: by field, of every own j and i. */
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

/* The ghosts of planes 1 to n - 2. */
void lu_exchange_halo(Exchange *exchange, const Grid *grid, double *u);

/* A sweep, forward (i, j, k ascending) or back. Before a plane: what its neighbours before it handed on is
   added to `incoming`; after it: what it hands on is sent. */
void wave_receive(Exchange *exchange, const Grid *grid, bool forward, double *incoming);
Outbox *wave_outbox(Exchange *exchange, int plane);
void wave_send(Exchange *exchange, const Grid *grid, bool forward, Outbox *outbox);
void wave_end(Exchange *exchange);

#endif
