/* nm-blast --program NAME --database PATH --info FILE --query FILE --fragments N --evalue X --out FILE
   [--reference FILE]: an MPI program that searches a database, divided into fragments among the ranks as in
   mpiBLAST. It prints one JSON line with the duration of the search. --reference is the output of an unsplit
   search; with it, the line also says whether the merged hits are the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deal.h"
#include "fail.h"
#include "hits.h"
#include "world.h"

enum { MOST_FRAGMENTS = 4096, EVERY_HIT = 1000000000 };

typedef struct {
    const char *program, *database, *info, *query, *fragments, *evalue, *out, *reference;
} Asked;

static void abort_all(void) {
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static Asked arguments(int count, char **words) {
    Asked asked = {0};
    const struct {
        const char *name, **value;
    } options[] = {
        {"--program", &asked.program}, {"--database", &asked.database},   {"--info", &asked.info},
        {"--query", &asked.query},     {"--fragments", &asked.fragments}, {"--evalue", &asked.evalue},
        {"--out", &asked.out},         {"--reference", &asked.reference}};
    size_t known = sizeof options / sizeof *options;
    for (int at = 1; at < count; at += 2) {
        size_t which = 0;
        while (which < known && strcmp(words[at], options[which].name) != 0)
            which++;
        if (which == known || at + 1 == count)
            fail("unknown option '%s', or one without its value", words[at]);
        *options[which].value = words[at + 1];
    }
    for (size_t which = 0; which + 1 < known; which++)
        if (!*options[which].value)
            fail("%s is missing", options[which].name);
    return asked;
}

static void read_file(const char *path, Text *text) {
    FILE *file = fopen(path, "r");
    if (!file)
        fail("%s cannot be read: %s", path, strerror(errno));
    static char chunk[1 << 16];
    for (size_t count; (count = fread(chunk, 1, sizeof chunk, file)) > 0;)
        text_add(text, "%.*s", (int)count, chunk);
    if (ferror(file) | fclose(file))
        fail("%s cannot be read", path);
}

static void write_file(const char *path, const Text *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || !text_write(text, file) || close(file))
        fail("%s cannot be written: %s", path, strerror(errno));
}

static void tell(const Database *database, int fragments, const Searched *searched, int size, double seconds,
                 double merging, const Text *merged, const char *reference) {
    Text line = {0};
    text_add(&line,
             "{\"event\":\"blast\",\"ranks\":%d,\"sequences\":%ld,\"letters\":%ld,\"hits\":%ld,"
             "\"search_s\":%.9f,\"merge_s\":%.9f,\"fragments\":[",
             size, database->sequences, database->letters, hits_count(merged), seconds, merging);
    for (int f = 0; f < fragments; f++)
        text_add(&line, "%s{\"rank\":%d,\"seconds\":%.6f}", f ? "," : "", searched->rank[f],
                 searched->seconds[f]);
    text_add(&line, "]");
    if (reference) {
        Text whole = {0};
        read_file(reference, &whole);
        Compared compared = hits_compare(merged, &whole);
        text_add(&line, ",\"ok\":%s,\"unsplit\":%ld,\"missing\":%ld,\"extra\":%ld,\"first\":",
                 compared.missing || compared.extra ? "false" : "true", hits_count(&whole), compared.missing,
                 compared.extra);
        json_string(&line, compared.first);
        text_free(&whole);
    }
    text_add(&line, "}\n");
    if (!text_write(&line, STDOUT_FILENO))
        fail("the result cannot be written: %s", strerror(errno));
    text_free(&line);
}

static void *zeroed(int count, size_t each) {
    void *memory = calloc((size_t)count, each);
    if (!memory)
        fail("out of memory");
    return memory;
}

static void sum_on_first(int rank, void *values, int count, MPI_Datatype type) {
    MPI(MPI_Reduce(rank ? values : MPI_IN_PLACE, values, count, type, MPI_SUM, 0, MPI_COMM_WORLD));
}

int main(int count, char **words) {
    fail_as(-1, NULL); /* errors in the arguments are reported without the number of a rank */
    Asked asked = arguments(count, words);
    char *end, every[16];
    long fragments = strtol(asked.fragments, &end, 10);
    if (*end || fragments < 1 || fragments > MOST_FRAGMENTS)
        fail("--fragments: a number from 1 to %d was expected, not '%s'", MOST_FRAGMENTS, asked.fragments);
    Database database = database_read(asked.database, asked.info);
    if (fragments > database.sequences)
        fail("%ld fragments of a database of %ld sequences", fragments, database.sequences);

    if (MPI_Init(&count, &words) != MPI_SUCCESS)
        fail("MPI_Init failed");
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int rank, size;
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    fail_as(rank, abort_all);
    snprintf(every, sizeof every, "%d", EVERY_HIT);
    const char *argv[] = {asked.program, "-db",     "",           "-query",           asked.query, "-outfmt",
                          "6",           "-evalue", asked.evalue, "-max_target_seqs", every,       NULL};
    Search search = {.argv = argv, .place = 2, .fragments = (int)fragments, .database = &database};
    Searched searched = {.found = zeroed((int)fragments, sizeof(Text)),
                         .seconds = zeroed((int)fragments, sizeof(double)),
                         .rank = zeroed((int)fragments, sizeof(int))};
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double begin = now();
    deal(&search, &searched);
    sum_on_first(rank, searched.seconds, (int)fragments, MPI_DOUBLE);
    sum_on_first(rank, searched.rank, (int)fragments, MPI_INT);
    if (rank == 0) {
        double merge = now();
        Text merged = hits_merge(searched.found, (int)fragments, asked.query);
        write_file(asked.out, &merged);
        double over = now();
        tell(&database, (int)fragments, &searched, size, over - begin, over - merge, &merged,
             asked.reference);
        text_free(&merged);
    }
    for (long f = 0; f < fragments; f++)
        text_free(&searched.found[f]);
    free(searched.found);
    free(searched.seconds);
    free(searched.rank);
    MPI(MPI_Finalize());
    return 0;
}
