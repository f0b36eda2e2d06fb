/* The verification of BT: residuals and errors, and their published values. */
#ifndef NEARMETAL_BT_CHECK_H
#define NEARMETAL_BT_CHECK_H

#include "bt_sweep.h"
#include "text.h"

enum { BT_CLASSES = 5 };
extern const char *const bt_class_names[BT_CLASSES];

typedef struct {
    int n, iterations;
    double dt;
    double residual[CFD_FIELDS], error[CFD_FIELDS]; /* root mean squares at the end, by field */
} BtClass;

extern const BtClass bt_classes[BT_CLASSES];

/* Compute the residuals and errors of the current flow over all ranks. This computes a right-hand side. */
void bt_norms(Flow *flow, double residual[CFD_FIELDS], double error[CFD_FIELDS]);

/* Return whether the current flow is as published for its class. The texts get the expected and the found
 * values. */
bool bt_check(Flow *flow, size_t class, Text *expected, Text *found);

#endif
