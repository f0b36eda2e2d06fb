/* Fragments given out to ranks one by one, as they become free: rank 0 gives them out, and searches too. */
#ifndef NEARMETAL_DEAL_H
#define NEARMETAL_DEAL_H

#include "database.h"
#include "text.h"

/* argv: of a search, in which the word at `place` is to name the fragment. */
typedef struct {
    const char **argv;
    int place, fragments;
    const Database *database;
} Search;

/* found: by fragment, all of them on rank 0. seconds, rank: by fragment, what this rank searched; else 0. */
typedef struct {
    Text *found;
    double *seconds;
    int *rank;
} Searched;

void deal(const Search *search, const Searched *searched);

#endif
