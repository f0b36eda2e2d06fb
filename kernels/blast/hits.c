/* Merges the tabular output (-outfmt 6) of several searches to that of one search, and compares outputs. */
#include "hits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum { FIELDS = 12, QUERY = 0, SUBJECT = 1, EVALUE = 10, SCORE = 11 };

typedef struct {
    const char *at;
    size_t length;
} Span;

/* Consecutive lines with the same query and sequence. */
typedef struct {
    Span query, subject, lines;
    long order; /* of its query in the file */
    double evalue, score;
    size_t number;
} Group;

typedef struct {
    char *id;
    long order;
} Query;

typedef struct {
    Query *list;
    size_t count, room;
} Queries;

static void *grown(void *list, size_t count, size_t *room, size_t each) {
    if (count < *room)
        return list;
    *room = 2 * *room + 64;
    list = realloc(list, *room * each);
    if (!list)
        fail("out of memory");
    return list;
}

static int span_order(Span a, Span b) {
    int order = memcmp(a.at, b.at, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int query_order(const void *a, const void *b) {
    return strcmp(((const Query *)a)->id, ((const Query *)b)->id);
}

static Queries queries_read(const char *path) {
    Queries queries = {0};
    FILE *file = fopen(path, "r");
    if (!file)
        fail("%s cannot be read: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        if (*line != '>')
            continue;
        line[strcspn(line, " \t\r\n")] = 0;
        char *id = strdup(line + 1);
        if (!id)
            fail("out of memory");
        queries.list = grown(queries.list, queries.count, &queries.room, sizeof *queries.list);
        queries.list[queries.count] = (Query){id, (long)queries.count};
        queries.count++;
    }
    free(line);
    fclose(file);
    qsort(queries.list, queries.count, sizeof *queries.list, query_order);
    return queries;
}

static void queries_free(Queries *queries) {
    for (size_t k = 0; k < queries->count; k++)
        free(queries->list[k].id);
    free(queries->list);
}

/* Return the position of a query in the file. A query that BLAST prints by another name comes last. */
static long order_of(const Queries *queries, Span id) {
    char name[1024];
    snprintf(name, sizeof name, "%.*s", (int)id.length, id.at);
    const Query *found =
        bsearch(&(Query){.id = name}, queries->list, queries->count, sizeof *queries->list, query_order);
    return found ? found->order : (long)queries->count;
}

static Span next_line(const char **at, const char *end) {
    const char *begin = *at, *stop = memchr(begin, '\n', (size_t)(end - begin));
    *at = stop ? stop + 1 : end;
    return (Span){begin, (size_t)((stop ? stop : end) - begin)};
}

static void split(Span line, Span field[FIELDS]) {
    const char *at = line.at, *end = line.at + line.length;
    for (int f = 0; f < FIELDS; f++) {
        if (!at)
            fail("BLAST printed a line of fewer than %d fields: %.*s", FIELDS, (int)line.length, line.at);
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        field[f] = (Span){at, (size_t)((tab ? tab : end) - at)};
        at = tab ? tab + 1 : NULL;
    }
}

static double value(Span field) {
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)field.length, field.at);
    return strtod(text, NULL);
}

static int group_order(const void *one, const void *other) {
    const Group *a = one, *b = other;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    int order = span_order(a->query, b->query);
    if (order)
        return order;
    if (a->evalue != b->evalue)
        return a->evalue < b->evalue ? -1 : 1;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    order = span_order(a->subject, b->subject);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

Text hits_merge(const Text *found, int fragments, const char *query_file) {
    Queries queries = queries_read(query_file);
    Group *groups = NULL;
    size_t count = 0, room = 0;
    for (int f = 0; f < fragments; f++) {
        const char *at = found[f].data, *end = at + found[f].used;
        for (size_t first = count; at < end;) {
            Span line = next_line(&at, end), field[FIELDS];
            split(line, field);
            Group *last = count > first ? &groups[count - 1] : NULL;
            if (last && span_order(last->query, field[QUERY]) == 0 &&
                span_order(last->subject, field[SUBJECT]) == 0) {
                last->lines.length = (size_t)(line.at + line.length - last->lines.at);
                continue;
            }
            groups = grown(groups, count, &room, sizeof *groups);
            groups[count] = (Group){.query = field[QUERY],
                                    .subject = field[SUBJECT],
                                    .lines = line,
                                    .order = order_of(&queries, field[QUERY]),
                                    .evalue = value(field[EVALUE]),
                                    .score = value(field[SCORE]),
                                    .number = count};
            count++;
        }
    }
    if (count)
        qsort(groups, count, sizeof *groups, group_order);
    Text merged = {0};
    for (size_t g = 0; g < count; g++)
        text_add(&merged, "%.*s\n", (int)groups[g].lines.length, groups[g].lines.at);
    free(groups);
    queries_free(&queries);
    return merged;
}

static int line_order(const void *a, const void *b) {
    return span_order(*(const Span *)a, *(const Span *)b);
}

static Span *sorted(const Text *text, long count) {
    Span *lines = malloc(((size_t)count + 1) * sizeof *lines);
    if (!lines)
        fail("out of memory");
    const char *at = text->data, *end = at + text->used;
    for (long k = 0; k < count; k++)
        lines[k] = next_line(&at, end);
    qsort(lines, (size_t)count, sizeof *lines, line_order);
    return lines;
}

long hits_count(const Text *text) {
    long count = 0;
    for (const char *at = text->data, *end = at + text->used; at < end; count++)
        next_line(&at, end);
    return count;
}

Compared hits_compare(const Text *merged, const Text *reference) {
    Compared found = {.lines = hits_count(merged)};
    long wanted = hits_count(reference), m = 0, r = 0;
    Span *own = sorted(merged, found.lines), *other = sorted(reference, wanted);
    while (m < found.lines || r < wanted) {
        int order = m == found.lines ? 1 : r == wanted ? -1 : span_order(own[m], other[r]);
        Span line = order < 0 ? own[m] : r < wanted ? other[r] : (Span){"", 0};
        m += order <= 0;
        r += order >= 0;
        found.extra += order < 0;
        found.missing += order > 0;
        if (order && !*found.first)
            snprintf(found.first, sizeof found.first, "%.*s", (int)line.length, line.at);
    }
    free(own);
    free(other);
    return found;
}
