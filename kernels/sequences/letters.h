/* Residues and bases, drawn and changed by a generator that gives the same letters on every machine. */
#ifndef NEARMETAL_LETTERS_H
#define NEARMETAL_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t state;
} Draw;

typedef struct {
    char *data;
    size_t used, room;
} Letters;

void letters_free(Letters *letters);

/* A whole number below `limit`, which is at most 2^32. */
uint64_t draw_below(Draw *draw, uint64_t limit);

/* Residues as frequent as in proteins, bases alike. */
void draw_letters(Draw *draw, uint64_t count, bool protein, Letters *drawn);

/* `of` as evolution might leave it: of each 1000 letters so many replaced, one in 200 of these gone or
 * doubled. */
void change(Draw *draw, const Letters *of, int per_thousand, bool protein, Letters *changed);

/* Codon by codon; a stop becomes alanine. */
void translate(const Letters *bases, Letters *residues);

/* One codon for each residue. */
void untranslate(const Letters *residues, Letters *bases);

#endif
