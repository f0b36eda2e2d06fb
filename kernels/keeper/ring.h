/* The TCP connections of a rank to the previous and the next rank. */
#ifndef NM_RING_H
#define NM_RING_H

#include "values.h"

#include <stdbool.h>
#include <stdint.h>

struct ring {
    struct values values;
    int next, previous;
};

/* Connect to the next rank, and accept the connection of the previous one. addresses: IPv4 addresses of all
 * ranks. */
void ring_join(struct ring *ring, uint64_t rank, int port, char *const addresses[], uint64_t ranks);
/* Send and receive the messages of a step. Return false if the job ends (SIGTERM). */
bool ring_exchange(struct ring *ring, uint64_t step);

#endif
