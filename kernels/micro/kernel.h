/* A kernel is one const table of operations, which its file puts into the list of kernels. */
#ifndef NEARMETAL_KERNEL_H
#define NEARMETAL_KERNEL_H

#include <stdbool.h>

#include "spec.h"
#include "text.h"
#include "world.h"

enum { MOST_PARTS = 4 };

/* seconds, comm_seconds: of this rank; work: bytes, operations or messages of all ranks together, nominal
   (planted extra work is not counted). */
typedef struct {
    const char *metric;
    double seconds, comm_seconds, work;
} Part;

typedef struct {
    int count;
    Part part[MOST_PARTS];
} Slice;

/* A slice of which one figure is told: work at a rate. */
static inline void one_rate(Slice *slice, double seconds, double comm_seconds, double work) {
    slice->count = 1;
    slice->part[0] = (Part){.metric = "rate", .seconds = seconds, .comm_seconds = comm_seconds, .work = work};
}

/* ok, expected, found: of the whole run, valid on rank 0 (the two are the insides of JSON objects);
   seconds: of this rank; work: of all ranks. */
typedef struct {
    bool ok;
    double seconds, work;
    Text expected, found;
} Verified;

typedef struct {
    const char *name;
    void *(*prepare)(Spec *spec, const World *world);
    /* units: how much work, in the kernel's own indivisible steps; at least 1. */
    void (*slice)(void *state, long units, Slice *slice);
    void (*verify)(void *state, Verified *verified);
    void (*release)(void *state);
} Kernel;

typedef struct Listed {
    const Kernel *kernel;
    struct Listed *next;
} Listed;

extern Listed *listed_kernels;

/* Adds a kernel to the list before main() begins, so that no other file has to name it. */
#define LISTED(table)                                                                                        \
    __attribute__((constructor)) static void list_##table(void) {                                            \
        static Listed listed = {.kernel = &(table)};                                                         \
        listed.next = listed_kernels;                                                                        \
        listed_kernels = &listed;                                                                            \
    }

#endif
