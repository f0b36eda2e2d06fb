/* Definitions that the flows of BT and LU share (RNR-94-007, section 3): the constants of the compressible
   Navier-Stokes equations on the unit cube, and the exact solution, from which the forcing is computed. */
#ifndef NEARMETAL_CFD_H
#define NEARMETAL_CFD_H

enum { CFD_FIELDS = 5 }; /* density, momentum in x, y and z, energy; all per volume */

/* The constants c1 to c5: c1 the ratio of specific heats, c2 = c1 - 1, c3 c4 the viscosity, c5 with c1 the
   conduction of heat. */
static const double cfd_c1 = 1.4, cfd_c2 = 0.4, cfd_c3 = 0.1, cfd_c4 = 1.0, cfd_c5 = 1.4;

/* Coefficients, in x, y and z, of the second difference that is added to each field. */
static const double cfd_dx = 0.75, cfd_dy = 0.75, cfd_dz = 1.0;

/* Coefficient of the fourth difference: a quarter of the largest of the three. */
static const double cfd_dssp = 0.25;

/* Compute the exact fields at a point of the unit cube. */
void cfd_exact(double xi, double eta, double zeta, double fields[CFD_FIELDS]);

#endif
