/* Distributes fragments to the ranks, one at a time, as ranks become free. Rank 0 distributes them, and
 * searches too. */
#ifndef NEARMETAL_DEAL_H
#define NEARMETAL_DEAL_H

#include "database.h"
#include "text.h"

/* A search. argv: its command line, in which the argument at `place` is replaced by the name of a fragment.
 */
typedef struct {
    const char **argv;
    int place, fragments;
    const Database *database;
} Search;

/* The results by fragment. found: hits; rank 0 has those of all fragments. seconds, rank: duration of the
   search, and the rank, for fragments that this rank has searched; else 0. */
typedef struct {
    Text *found;
    double *seconds;
    int *rank;
} Searched;

void deal(const Search *search, const Searched *searched);

#endif
