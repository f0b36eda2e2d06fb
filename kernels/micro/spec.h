/* KERNEL-SPEC of the command line: name:key=value:key=value. */
#ifndef NEARMETAL_SPEC_H
#define NEARMETAL_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "pages.h"

enum { SPEC_PAIRS = 16, SPEC_WORD = 48 };
#define MOST_UNITS (1L << 40) /* of a slice */

typedef struct {
    char key[SPEC_WORD], value[SPEC_WORD];
    bool used;
} SpecPair;

typedef struct {
    char name[SPEC_WORD];
    int count;
    SpecPair pair[SPEC_PAIRS];
} Spec;

Spec spec_parse(const char *text);

/* Each marks its key as used; a value that does not fit fails. */
long spec_integer(Spec *spec, const char *key, long fallback, long least, long most);
double spec_real(Spec *spec, const char *key, double fallback, double least, double most);

/* Index of the value among `count` words. */
size_t spec_choice(Spec *spec, const char *key, const char *const *words, size_t count, size_t fallback);

/* What every kernel takes. extra: share of additional work planted in each slice; corrupt: spoil one value,
   so that a test can see the verification fail; threads: of each rank, by OpenMP, where the kernel can. */
typedef struct {
    Pages pages;
    double extra;
    bool corrupt;
    int threads;
} Common;

Common spec_common(Spec *spec);

/* The same for a kernel whose ranks compute on one thread each: more of them fail. */
Common spec_single(Spec *spec);

/* Fails on a key that nobody asked for. */
void spec_end(const Spec *spec);

#endif
