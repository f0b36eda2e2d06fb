#include "values.h"
#include "fail.h"

#include <string.h>

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t before(const struct values *values, uint64_t rank) {
    return (rank + values->ranks - 1) % values->ranks;
}

static uint64_t word(uint64_t value, uint64_t step, uint64_t i) {
    return i == 0 ? step : value + i * 0x9e3779b97f4a7c15u;
}

void values_begin(struct values *values, uint64_t rank, uint64_t ranks) {
    if (ranks < 2 || ranks > VALUES_MOST_RANKS || rank >= ranks)
        fail("a job has 2 to %d ranks, and this one is of them", VALUES_MOST_RANKS);
    values->rank = rank;
    values->ranks = ranks;
    for (uint64_t r = 0; r < ranks; r++)
        values->of[r] = mixed(r + 1);
}

void values_fill(const struct values *values, uint64_t step, uint64_t message[VALUES_WORDS]) {
    for (uint64_t i = 0; i < VALUES_WORDS; i++)
        message[i] = word(values->of[values->rank], step, i);
}

void values_take(struct values *values, uint64_t step, const uint64_t message[VALUES_WORDS]) {
    const uint64_t from = before(values, values->rank);
    uint64_t last[VALUES_MOST_RANKS];
    for (uint64_t i = 0; i < VALUES_WORDS; i++)
        if (message[i] != word(values->of[from], step, i))
            fail("in step %llu the message of rank %llu is wrong", (unsigned long long)step,
                 (unsigned long long)from);
    memcpy(last, values->of, sizeof last);
    for (uint64_t r = 0; r < values->ranks; r++)
        values->of[r] = mixed(last[r] ^ mixed(last[before(values, r)] + step));
}
