/* The result of a job: every rank has a value, which each step mixes with that of the rank before it. Every
 * rank computes the values of all, and so knows what each message has to hold. */
#ifndef NM_VALUES_H
#define NM_VALUES_H

#include <stdint.h>

enum { VALUES_MOST_RANKS = 64, VALUES_WORDS = 128 };

struct values {
    uint64_t rank, ranks;
    uint64_t of[VALUES_MOST_RANKS];
};

void values_begin(struct values *values, uint64_t rank, uint64_t ranks);
/* The message of a step to the next rank. */
void values_fill(const struct values *values, uint64_t step, uint64_t message[VALUES_WORDS]);
/* The end of a step: verify the message of the rank before, or fail(). */
void values_take(struct values *values, uint64_t step, const uint64_t message[VALUES_WORDS]);

#endif
