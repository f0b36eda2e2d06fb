/* A kernel is a constant table of operations, which its source file adds to the list of kernels by LISTED().
 */
#ifndef NEARMETAL_KERNEL_H
#define NEARMETAL_KERNEL_H

#include <stdbool.h>

#include "spec.h"
#include "text.h"
#include "world.h"

enum { MOST_PARTS = 4 };

/* One part of a slice. seconds, comm_seconds: time of this rank, and its time in MPI calls; work: bytes,
   operations or messages of all ranks together, without planted extra work. */
typedef struct {
    const char *metric;
    double seconds, comm_seconds, work;
} Part;

typedef struct {
    int count;
    Part part[MOST_PARTS];
} Slice;

/* Set the results of a slice with a single part, named "rate". */
static inline void one_rate(Slice *slice, double seconds, double comm_seconds, double work) {
    slice->count = 1;
    slice->part[0] = (Part){.metric = "rate", .seconds = seconds, .comm_seconds = comm_seconds, .work = work};
}

/* The result of a full, verified run. ok, expected, found: result of all ranks, valid on rank 0; expected and
   found are the members of JSON objects. seconds: of this rank; work: of all ranks. */
typedef struct {
    bool ok;
    double seconds, work;
    Text expected, found;
} Verified;

typedef struct {
    const char *name;
    void *(*prepare)(Spec *spec, const World *world);
    /* Run one slice. units: amount of work, in units that the kernel defines; at least 1. */
    void (*slice)(void *state, long units, Slice *slice);
    void (*verify)(void *state, Verified *verified);
    void (*release)(void *state);
} Kernel;

typedef struct Listed {
    const Kernel *kernel;
    struct Listed *next;
} Listed;

extern Listed *listed_kernels;

/* Add a kernel to the list before main() begins, so that no other file has to name it. */
#define LISTED(table)                                                                                        \
    __attribute__((constructor)) static void list_##table(void) {                                            \
        static Listed listed = {.kernel = &(table)};                                                         \
        listed.next = listed_kernels;                                                                        \
        listed_kernels = &listed;                                                                            \
    }

#endif
