/* What BT is held against: residuals and errors, and their published values. */
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

/* Of the flow now, on all ranks. Computes a right-hand side. */
void bt_norms(Flow *flow, double residual[CFD_FIELDS], double error[CFD_FIELDS]);

/* Is the flow now as published for its class? The two texts get expected and found. */
bool bt_check(Flow *flow, size_t class, Text *expected, Text *found);

#endif
