/* The sparse matrix of CG (RNR-94-007): computes the rows that one rank owns. */
#ifndef NEARMETAL_CG_MATRIX_H
#define NEARMETAL_CG_MATRIX_H

#include "pages.h"

/* Compressed sparse rows: row i has the entries start[i] to start[i+1] - 1, in ascending order of columns. */
typedef struct {
    int rows;
    long *start;
    int *column;
    double *value;
} Matrix;

/* Random vectors x_i of `nonzer` elements and the diagonal one: A = sum of w_i x_i x_i' + (0.1 - shift) I,
   w_i falling geometrically from 1 to 0.1. */
typedef struct MatrixPlan MatrixPlan;

/* Draw the vectors, and count the entries of the rows first <= i < first + rows. */
MatrixPlan *matrix_plan(int n, int nonzer, double shift, int first, int rows);
size_t matrix_need(const MatrixPlan *plan);

/* Compute the matrix in matrix_need() bytes of the arena, and free the plan. */
Matrix matrix_make(MatrixPlan *plan, Arena *arena);

#endif
