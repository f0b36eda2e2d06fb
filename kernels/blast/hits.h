/* Lines of BLAST's tabular output (-outfmt 6): put together as of one search, and compared. */
#ifndef NEARMETAL_HITS_H
#define NEARMETAL_HITS_H

#include "text.h"

/* What the fragments gave, in the order of an unsplit search: query by query as in the FASTA file `queries`,
   of each the sequences by their best e-value, then score. */
Text hits_merge(const Text *found, int fragments, const char *queries);

/* lines: of the merged; missing: lines of the reference that it lacks; extra: its lines that the reference
   lacks; first: one of either, empty where there is none. */
typedef struct {
    long lines, missing, extra;
    char first[256];
} Compared;

long hits_count(const Text *lines);
Compared hits_compare(const Text *merged, const Text *reference);

#endif
