/* The block-tridiagonal systems of BT along parallel lines of points, LANES lines at once.

   Along an axis, with M = dU/dW of the conserved fields U by density, velocities and p/density (W), the
   factor of the approximate factorisation (RNR-94-007, section 3) reads  -P(i-1) W(i-1) + B(i) W(i) + Q(i+1)
   W(i+1) = rhs(i). Written in W its blocks are products of small triangular and nearly diagonal matrices,
   made where they are needed from the six numbers of a point's State. */
#ifndef NEARMETAL_BT_LINES_H
#define NEARMETAL_BT_LINES_H

#include "cfd.h"
#include "lanes.h"

/* The result of the elimination for a point: W(i) = change - sum of column[c] * W(i+1)[c]. */
typedef struct {
    Lanes column[CFD_FIELDS][CFD_FIELDS], change[CFD_FIELDS];
} Kept;

/* W of a point. */
typedef struct {
    Lanes w[CFD_FIELDS];
} Solved;

/* Factors, multiplied by the time step: of the fluxes, of the second differences of all fields, of viscosity
   across and along the line, and of heat conduction. */
typedef struct {
    double flux, spread, across, along, heat;
} LineFactors;

LineFactors line_factors(int n, double dt, double spread);

enum { BUNDLE = 4 }; /* groups of lanes solved together: while one waits for its quotients, others go on */

/* A bundle of lines. Fields of a point are in the order density, momentum across the line (two), momentum
   along it, energy. */
typedef struct {
    double *u, *rhs;        /* density of the first point of the first group */
    long field[CFD_FIELDS]; /* where the fields lie behind the density */
    long step;              /* to the next point */
    long group;             /* to the next group */
    int groups, points;
} Lines;

/* Eliminate along the lines. before: results for the points before the first ones, by group; NULL if these
   are on a wall. kept: gets the results by point, then by group. */
void lines_eliminate(const Lines *lines, const LineFactors *factors, const Kept *before, Kept *kept);

/* Substitute back along the lines. behind: W of the points after the last ones, by group; NULL if these are
   on a wall. The changes of U replace rhs or are added to u. first: gets W of the first points, unless it is
   NULL. */
typedef enum { REPLACE_RHS, ADD_TO_U } Outcome;
void lines_substitute(const Lines *lines, const Kept *kept, const Solved *behind, Outcome outcome,
                      Solved *first);

#endif
