/* The linear congruential generator of the NAS benchmarks (RNR-94-007): x <- 5^13 x mod 2^46, u = x / 2^46.
 */
#ifndef NEARMETAL_RANDOM_H
#define NEARMETAL_RANDOM_H

#include <stdint.h>
#include <string.h>

static const uint64_t random_factor = 1220703125; /* 5^13 */
static const uint64_t random_mask = (UINT64_C(1) << 46) - 1;

/* Products wrap modulo 2^64, which 2^46 divides: plain multiplication and mask are exact. */
static inline uint64_t random_step(uint64_t x, uint64_t factor) {
    return x * factor & random_mask;
}

/* factor^n mod 2^46 */
static inline uint64_t random_power(uint64_t factor, uint64_t n) {
    uint64_t power = 1;
    for (; n; n >>= 1, factor = random_step(factor, factor))
        if (n & 1)
            power = random_step(power, factor);
    return power;
}

/* Return the state after n steps. */
static inline uint64_t random_jump(uint64_t x, uint64_t n) {
    return random_step(x, random_power(random_factor, n));
}

/* Convert an integer below 2^52 to a double by writing it into the mantissa of 2^52. This vectorises on every
   machine, while an instruction that converts vectors of 64-bit integers exists only on some. */
static inline double random_real(uint64_t x) {
    uint64_t bits = x | UINT64_C(0x4330000000000000);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value - 4503599627370496.0;
}

/* u in (0, 1) */
static inline double random_unit(uint64_t x) {
    return random_real(x) * 0x1p-46;
}

/* Advance the state by one step, and return u. */
static inline double random_next(uint64_t *x) {
    *x = random_step(*x, random_factor);
    return random_unit(*x);
}

#endif
