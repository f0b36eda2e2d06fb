/* Merges the tabular output (-outfmt 6) of several searches to that of one search, and compares outputs. */
#ifndef NEARMETAL_HITS_H
#define NEARMETAL_HITS_H

#include "text.h"

/* Return the hits of all fragments in the order of an unsplit search: by query in the order of the FASTA file
   `queries`, and within a query by the sequences' best e-value, then score. */
Text hits_merge(const Text *found, int fragments, const char *queries);

/* A comparison with a reference. lines: number of merged lines; missing: number of lines that only the
   reference has; extra: number of lines that the reference does not have; first: one of these lines, empty if
   there is none. */
typedef struct {
    long lines, missing, extra;
    char first[256];
} Compared;

long hits_count(const Text *lines);
Compared hits_compare(const Text *merged, const Text *reference);

#endif
