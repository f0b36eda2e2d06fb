/* The connections of a rank to those before and after it, by TCP. */
#ifndef NM_RING_H
#define NM_RING_H

#include "values.h"

#include <stdbool.h>
#include <stdint.h>

struct ring {
    struct values values;
    int next, previous;
};

/* Connect to the next rank, and let the one before connect. addresses: IPv4, of all ranks. */
void ring_join(struct ring *ring, uint64_t rank, int port, char *const addresses[], uint64_t ranks);
/* Send and receive the messages of a step. false: the job has been asked to end. */
bool ring_exchange(struct ring *ring, uint64_t step);

#endif
