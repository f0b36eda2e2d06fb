/* The right-hand side of MG. */
#ifndef NEARMETAL_MG_CHARGES_H
#define NEARMETAL_MG_CHARGES_H

#include "mg_grid.h"

/* v = +1 at the ten points that drew the greatest numbers, -1 at the ten that drew the smallest, 0 elsewhere;
   the halo is left to mg_grid_exchange(). spoil: one of the twenty is not 1. */
void charges_place(const Grid *v, const Cut *cut, bool spoil);

#endif
