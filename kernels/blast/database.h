/* A BLAST database, and its fragments. A fragment is a range of its sequences, given by an alias file. */
#ifndef NEARMETAL_DATABASE_H
#define NEARMETAL_DATABASE_H

#include <stdbool.h>

typedef struct {
    const char *path;
    bool protein;
    long sequences, letters;
} Database;

/* Return the database at a path. info: file with the output of `blastdbcmd -info`. */
Database database_read(const char *path, const char *info);

/* Write the alias file of fragment `which` of `count` into the working directory. `name` gets the fragment's
 * name. */
void database_fragment(const Database *database, int which, int count, char name[32]);

#endif
