/* Parses the argument KERNEL-SPEC: name:key=value:key=value. */
#ifndef NEARMETAL_SPEC_H
#define NEARMETAL_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "pages.h"

enum { SPEC_PAIRS = 16, SPEC_WORD = 48 };
#define MOST_UNITS (1L << 40) /* maximum number of units in a slice */

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

/* Return the value of a key, or `fallback` if the key is not given. Each marks the key as used, and fails if
   the value is invalid. */
long spec_integer(Spec *spec, const char *key, long fallback, long least, long most);
double spec_real(Spec *spec, const char *key, double fallback, double least, double most);

/* Return the index of the key's value among `count` words. */
size_t spec_choice(Spec *spec, const char *key, const char *const *words, size_t count, size_t fallback);

/* Keys that every kernel has. extra: share of additional work that is planted in each slice; corrupt: whether
   to spoil one value, so that tests see the verification fail; threads: OpenMP threads of each rank, if the
   kernel supports them. */
typedef struct {
    Pages pages;
    double extra;
    bool corrupt;
    int threads;
} Common;

Common spec_common(Spec *spec);

/* Read the common keys for a kernel that supports only one thread for each rank. Fails if more are requested.
 */
Common spec_single(Spec *spec);

/* Fail if the specification has a key that the kernel does not use. */
void spec_end(const Spec *spec);

#endif
