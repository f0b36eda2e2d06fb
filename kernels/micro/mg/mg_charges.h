/* The right-hand side of MG. */
#ifndef NEARMETAL_MG_CHARGES_H
#define NEARMETAL_MG_CHARGES_H

#include "mg_grid.h"

/* Set v to +1 at the ten points with the largest random numbers, -1 at the ten with the smallest, and 0
   elsewhere. The halo is not set; see mg_grid_exchange(). spoil: whether one of the charges gets a wrong
   value, for tests. */
void charges_place(const Grid *v, const Cut *cut, bool spoil);

#endif
