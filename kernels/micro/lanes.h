/* Vectors of LANES doubles, by the compiler's vector types. LANES is chosen for the widest vector registers
   that the machine is likely to have. Operators work lane by lane. */
#ifndef NEARMETAL_LANES_H
#define NEARMETAL_LANES_H

#include <stdint.h>

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef double LooseLanes __attribute__((vector_size(LANES * sizeof(double)), aligned(8), may_alias));
typedef int64_t LaneMask __attribute__((vector_size(LANES * sizeof(int64_t))));

/* Return the largest multiple of LANES that is not above j. */
static inline int lanes_floor(int j) {
    return j & -LANES;
}

static inline Lanes lanes_at(const double *from) {
    return *(const LooseLanes *)from;
}

static inline void lanes_put(double *to, Lanes value) {
    *(LooseLanes *)to = value;
}

/* Return a mask of the lanes `first` to `last`. The numbers may be outside of 0 to LANES - 1. */
static inline LaneMask lanes_between(int first, int last) {
#if LANES == 8
    const LaneMask lane = {0, 1, 2, 3, 4, 5, 6, 7};
#else
    const LaneMask lane = {0, 1, 2, 3};
#endif
    return (lane >= first) & (lane <= last);
}

/* Set the lanes outside of the mask to 0, also if they are NaN. */
static inline Lanes lanes_only(Lanes value, LaneMask mask) {
    return (Lanes)((LaneMask)value & mask);
}

#endif
