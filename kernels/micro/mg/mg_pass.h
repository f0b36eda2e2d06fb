/* The passes of MG over a grid. Successive operators are applied in one pass, a few planes apart, so that
   each finds the result of the previous one in the cache. A pass sends no messages, and does not set the halo
   of its result; see mg_grid_exchange(). planes: number of planes of the finer grid to process, from the
   first on; even. */
#ifndef NEARMETAL_MG_PASS_H
#define NEARMETAL_MG_PASS_H

#include "mg_grid.h"

/* Extra time of pass_residual() and pass_correct() for the overlap of operators, in planes. */
static const double pass_overlap = 1.4;

/* The threads of this rank, and their memory. */
typedef struct {
    int threads;
    double *room;
    size_t room_bytes; /* of each thread */
    double *sums;      /* by column */
} Crew;

/* Return the bytes that the threads need. n: points of the finest grid in each direction. */
size_t crew_need(long n, int threads);
Crew crew_make(Arena *arena, long n, int threads);

/* coarse = P (v - A u) */
void pass_residual(const Crew *crew, const Grid *coarse, const Grid *v, const Grid *u, long planes);

/* coarse = P r */
void pass_restrict(const Crew *crew, const Grid *coarse, const Grid *r, long planes);

/* w = u + Q z; out = w + S (v - A w). u NULL stands for 0. */
void pass_correct(const Crew *crew, const Grid *out, const Grid *u, const Grid *z, const Grid *v,
                  const double *smoother, long planes);

/* out = S r */
void pass_smooth(const Crew *crew, const Grid *out, const Grid *r, const double *smoother);

/* Return the sum of squares of v - A u over this rank's points. */
double pass_norm(const Crew *crew, const Grid *v, const Grid *u);

#endif
