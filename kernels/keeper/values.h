/* The values that the ranks of a job compute. In each step every rank mixes its value with that of the
 * previous rank. Every rank computes the values of all ranks, and so knows the right contents of each
 * message. */
#ifndef NM_VALUES_H
#define NM_VALUES_H

#include <stdint.h>

enum { VALUES_MOST_RANKS = 64, VALUES_WORDS = 128 };

struct values {
    uint64_t rank, ranks;
    uint64_t of[VALUES_MOST_RANKS];
};

void values_begin(struct values *values, uint64_t rank, uint64_t ranks);
/* Fill the message to the next rank in a step. */
void values_fill(const struct values *values, uint64_t step, uint64_t message[VALUES_WORDS]);
/* End a step: verify the message of the previous rank, or fail(), and advance all values. */
void values_take(struct values *values, uint64_t step, const uint64_t message[VALUES_WORDS]);

#endif
