/* The orchestrator's side of slices: one FIFO of tokens per rank, one of JSON lines from rank 0. */
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

/* Opens DIRECTORY/token.<rank>; does not block where the orchestrator holds it open for reading and writing.
 */
Tokens tokens_open(const char *directory, int rank);

/* Blocks in read() until a whole line is there; the end of the file is 'q'. */
Token tokens_next(Tokens *tokens, int kernels);

#endif
