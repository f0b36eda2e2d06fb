/* A BLAST database, and its fragments. A fragment is a range of its sequences, given by an alias file. */
#include "database.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "world.h"

/* Return the number at the beginning of a text, after blanks. It has commas between thousands. */
static long number(const char *text) {
    long found = 0;
    for (text += strspn(text, " \t;"); (*text >= '0' && *text <= '9') || *text == ','; text++)
        if (*text != ',')
            found = 10 * found + (*text - '0');
    return found;
}

Database database_read(const char *path, const char *info) {
    Database database = {.path = path};
    FILE *file = fopen(info, "r");
    if (!file)
        fail("%s cannot be read: %s", info, strerror(errno));
    char line[4096];
    while (database.sequences == 0 && fgets(line, sizeof line, file)) {
        /* "	20,000 sequences; 7,003,281 total residues"; bases where it is of nucleotides */
        const char *rest = strstr(line, " sequences;");
        if (!rest)
            continue;
        database.sequences = number(line);
        database.letters = number(rest + strlen(" sequences"));
        database.protein = strstr(rest, "total residues") != NULL;
    }
    fclose(file);
    if (database.sequences < 1 || database.letters < 1)
        fail("%s does not tell the sequences and letters of a database", info);
    return database;
}

void database_fragment(const Database *database, int which, int count, char name[32]) {
    char file_name[64];
    snprintf(name, 32, "fragment.%d", which);
    snprintf(file_name, sizeof file_name, "%s.%s", name, database->protein ? "pal" : "nal");
    FILE *file = fopen(file_name, "w");
    if (!file)
        fail("%s cannot be made: %s", file_name, strerror(errno));
    /* The fragment has the length and number of sequences of the whole database, so that the statistics of a
       hit are those of an unsplit search. */
    fprintf(file, "TITLE %s\nDBLIST \"%s\"\nFIRST_OID %ld\nLAST_OID %ld\nSTATS_NSEQ %ld\nSTATS_TOTLEN %ld\n",
            name, database->path, share_begin(database->sequences, which, count) + 1,
            share_begin(database->sequences, which + 1, count), database->sequences, database->letters);
    if (ferror(file) | fclose(file))
        fail("%s cannot be written: %s", file_name, strerror(errno));
}
