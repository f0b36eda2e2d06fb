/* Random sequences of residues and bases, and mutations of them. The generator gives the same letters on
 * every machine. */
#include "letters.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* Background frequencies of residues in proteins, per 100,000 (Robinson and Robinson, PNAS 88:8880, 1991). */
static const struct {
    char letter;
    uint32_t share;
} residues[] = {{'A', 7805}, {'R', 5129}, {'N', 4487}, {'D', 5364}, {'C', 1925}, {'Q', 4264}, {'E', 6295},
                {'G', 7377}, {'H', 2199}, {'I', 5142}, {'L', 9019}, {'K', 5744}, {'M', 2243}, {'F', 3856},
                {'P', 5203}, {'S', 7120}, {'T', 5841}, {'W', 1330}, {'Y', 3216}, {'V', 6441}};

enum { SHARES = 100000, CODONS = 64, CODON = 3, UNEVEN = 200 };

static const char bases[] = "TCAG";
/* The standard genetic code, first base slowest. */
static const char code[] = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG";

static void add(Letters *to, char letter) {
    if (to->used == to->room) {
        to->room = 2 * to->room + 1024;
        to->data = realloc(to->data, to->room);
        if (!to->data)
            fail("out of memory");
    }
    to->data[to->used++] = letter;
}

void letters_free(Letters *letters) {
    free(letters->data);
    *letters = (Letters){0};
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014) */
static uint64_t draw_bits(Draw *draw) {
    uint64_t z = draw->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t draw_below(Draw *draw, uint64_t limit) {
    return (draw_bits(draw) >> 32) * limit >> 32;
}

static char draw_letter(Draw *draw, bool protein) {
    if (!protein)
        return bases[draw_below(draw, sizeof bases - 1)];
    uint64_t at = draw_below(draw, SHARES);
    size_t which = 0;
    while (at >= residues[which].share)
        at -= residues[which++].share;
    return residues[which].letter;
}

void draw_letters(Draw *draw, uint64_t count, bool protein, Letters *drawn) {
    for (uint64_t at = 0; at < count; at++)
        add(drawn, draw_letter(draw, protein));
}

void change(Draw *draw, const Letters *of, int per_thousand, bool protein, Letters *changed) {
    for (size_t at = 0; at < of->used; at++) {
        if (draw_below(draw, 1000) >= (uint64_t)per_thousand) {
            add(changed, of->data[at]);
            continue;
        }
        uint64_t fate = draw_below(draw, UNEVEN);
        if (fate == 0)
            continue;
        add(changed, draw_letter(draw, protein));
        if (fate == 1)
            add(changed, of->data[at]);
    }
}

static int codon(const char *three) {
    int at = 0;
    for (int i = 0; i < CODON; i++)
        at = 4 * at + (int)(strchr(bases, three[i]) - bases);
    return at;
}

void translate(const Letters *from, Letters *to) {
    for (size_t at = 0; at + CODON <= from->used; at += CODON) {
        char residue = code[codon(from->data + at)];
        add(to, residue == '*' ? 'A' : residue);
    }
}

void untranslate(const Letters *from, Letters *to) {
    for (size_t at = 0; at < from->used; at++) {
        int which = (int)(strchr(code, from->data[at]) - code);
        add(to, bases[which / 16]);
        add(to, bases[which / 4 % 4]);
        add(to, bases[which % 4]);
    }
}
