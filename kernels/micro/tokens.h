/* Tokens by which nearmetal controls the ranks: each rank reads them from its own FIFO. Rank 0 answers with
   JSON Lines in another FIFO. */
#ifndef NEARMETAL_TOKENS_H
#define NEARMETAL_TOKENS_H

#include "spec.h"

typedef struct {
    char what; /* 's' slice, 'v' verify, 'q' quit */
    int kernel;
    long units; /* of a slice; 0: as many as the kernel's specification says */
} Token;

typedef struct {
    int descriptor;
    unsigned used, next;
    char buffer[256];
} Tokens;

/* Open DIRECTORY/token.<rank>. This does not block, since nearmetal has the FIFO open for reading and
 * writing. */
Tokens tokens_open(const char *directory, int rank);

/* Wait in read() for a complete line, and return its token. The end of the file counts as 'q'. */
Token tokens_next(Tokens *tokens, int kernels);

#endif
