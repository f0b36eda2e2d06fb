/* A BLAST database as a whole, and the fragments of it: ranges of its sequences, by alias files. */
#ifndef NEARMETAL_DATABASE_H
#define NEARMETAL_DATABASE_H

#include <stdbool.h>

typedef struct {
    const char *path;
    bool protein;
    long sequences, letters;
} Database;

/* info: the file that `blastdbcmd -info` wrote. */
Database database_read(const char *path, const char *info);

/* Writes fragment `which` of `count` into the working directory; its name is put into `name`. */
void database_fragment(const Database *database, int which, int count, char name[32]);

#endif
