/* nm-sequences --seed N --database KIND --queries KIND --sequences N --length N --searched N --directory
   PATH: generates a database to search in (sequences.fasta) and queries (query.fasta). KIND is protein or
   nucleotide. The same arguments give the same bytes on every machine.

   A quarter of the sequences are relatives of earlier ones, and every query is a relative of a sequence in
   the database, so that a search finds hits. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "letters.h"

enum {
    KEPT = 64, /* sequences that may have relatives */
    /* Letters of 1000 that are replaced in a relative, and in a query; fewer for bases, since a search for
       bases needs runs of equal ones. */
    KIN = 300,
    KIN_BASES = 100,
    QUERIED = 200,
    QUERIED_BASES = 30,
    LINE = 60, /* letters in a line of a file */
    MOST_LENGTH = 1 << 24,
};

typedef struct {
    uint64_t seed, sequences, length, queries;
    bool protein, protein_queries;
    const char *directory;
} Asked;

typedef struct {
    FILE *file;
    char name[PATH_MAX];
} Fasta;

static Fasta fasta_open(const char *directory, const char *name) {
    Fasta fasta = {0};
    if (snprintf(fasta.name, sizeof fasta.name, "%s/%s", directory, name) >= (int)sizeof fasta.name)
        fail("%s: path too long", directory);
    fasta.file = fopen(fasta.name, "w");
    if (!fasta.file)
        fail("%s cannot be made: %s", fasta.name, strerror(errno));
    return fasta;
}

static void fasta_add(const Fasta *to, char prefix, uint64_t number, const Letters *letters) {
    fprintf(to->file, ">%c%llu\n", prefix, (unsigned long long)number);
    for (size_t at = 0; at < letters->used; at += LINE) {
        size_t left = letters->used - at;
        fprintf(to->file, "%.*s\n", (int)(left < LINE ? left : LINE), letters->data + at);
    }
}

static void fasta_close(const Fasta *fasta) {
    if (ferror(fasta->file) | fclose(fasta->file))
        fail("%s cannot be written: %s", fasta->name, strerror(errno));
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    uint64_t found = strtoull(text, &end, 10);
    if (*end || end == text || *text == '-' || errno || found < least || found > most)
        fail("%s: a whole number from %llu to %llu was expected, not '%s'", option, (unsigned long long)least,
             (unsigned long long)most, text);
    return found;
}

static bool is_protein(const char *option, const char *text) {
    if (strcmp(text, "protein") != 0 && strcmp(text, "nucleotide") != 0)
        fail("%s: protein or nucleotide, not '%s'", option, text);
    return *text == 'p';
}

static Asked arguments(int count, char **words) {
    Asked asked = {0};
    int given = 0;
    for (int at = 1; at + 1 < count; at += 2, given++) {
        const char *option = words[at], *value = words[at + 1];
        if (strcmp(option, "--directory") == 0)
            asked.directory = value;
        else if (strcmp(option, "--seed") == 0)
            asked.seed = number(option, value, 0, UINT64_MAX);
        else if (strcmp(option, "--database") == 0)
            asked.protein = is_protein(option, value);
        else if (strcmp(option, "--queries") == 0)
            asked.protein_queries = is_protein(option, value);
        else if (strcmp(option, "--sequences") == 0)
            asked.sequences = number(option, value, 1, INT_MAX);
        else if (strcmp(option, "--length") == 0)
            asked.length = number(option, value, 100, MOST_LENGTH);
        else if (strcmp(option, "--searched") == 0)
            asked.queries = number(option, value, 1, INT_MAX);
        else
            fail("unknown option '%s'", option);
    }
    if (given != 7 || count != 15 || !asked.directory || asked.queries > asked.sequences)
        fail("usage: nm-sequences --directory DIR --seed N --database KIND --queries KIND --sequences N "
             "--length N "
             "--searched N (at most --sequences)");
    return asked;
}

/* Draw a sequence. Its length is uniformly distributed from 1/4 to 7/4 of the mean. */
static void draw_sequence(Draw *draw, const Asked *asked, Letters *sequence) {
    uint64_t length = asked->length / 4 + draw_below(draw, asked->length * 3 / 2 + 1);
    draw_letters(draw, length, asked->protein, sequence);
}

static void make_query(Draw *draw, const Asked *asked, const Letters *sequence, Letters *query) {
    Letters other = {0};
    if (asked->protein && !asked->protein_queries)
        untranslate(sequence, &other);
    else if (!asked->protein && asked->protein_queries)
        translate(sequence, &other);
    bool residues = asked->protein || asked->protein_queries;
    change(draw, other.used ? &other : sequence, residues ? QUERIED : QUERIED_BASES, asked->protein_queries,
           query);
    letters_free(&other);
}

int main(int count, char **words) {
    Asked asked = arguments(count, words);
    Draw draw = {asked.seed}, changes = {~asked.seed}; /* the same database for all kinds of queries */
    Fasta database = fasta_open(asked.directory, "sequences.fasta"),
          queries = fasta_open(asked.directory, "query.fasta");
    Letters kept[KEPT] = {{0}};
    uint64_t asked_for = 0;
    for (uint64_t n = 0; n < asked.sequences; n++) {
        Letters sequence = {0};
        uint64_t there = n < KEPT ? n : KEPT;
        if (there && draw_below(&draw, 4) == 0)
            change(&draw, &kept[draw_below(&draw, there)], asked.protein ? KIN : KIN_BASES, asked.protein,
                   &sequence);
        else
            draw_sequence(&draw, &asked, &sequence);
        fasta_add(&database, 's', n, &sequence);
        if ((n + 1) * asked.queries / asked.sequences > asked_for) { /* evenly over the database */
            Letters query = {0};
            make_query(&changes, &asked, &sequence, &query);
            fasta_add(&queries, 'q', asked_for++, &query);
            letters_free(&query);
        }
        Letters *place = &kept[n < KEPT ? n : draw_below(&draw, KEPT)];
        letters_free(place);
        *place = sequence;
    }
    for (int k = 0; k < KEPT; k++)
        letters_free(&kept[k]);
    fasta_close(&database);
    fasta_close(&queries);
    return 0;
}
