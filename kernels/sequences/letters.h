/* Random sequences of residues and bases, and mutations of them. The generator gives the same letters on
 * every machine. */
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

/* Draw a whole number below `limit`, which is at most 2^32. */
uint64_t draw_below(Draw *draw, uint64_t limit);

/* Draw a sequence. Residues are as frequent as in proteins; all bases are equally frequent. */
void draw_letters(Draw *draw, uint64_t count, bool protein, Letters *drawn);

/* Mutate a sequence: of 1000 letters, `per_thousand` are replaced. Instead of being replaced, one in 200 of
 * these is deleted or doubled. */
void change(Draw *draw, const Letters *of, int per_thousand, bool protein, Letters *changed);

/* Translate bases to residues, codon by codon. A stop codon becomes alanine. */
void translate(const Letters *bases, Letters *residues);

/* Translate residues to bases, with one fixed codon for each residue. */
void untranslate(const Letters *residues, Letters *bases);

#endif
