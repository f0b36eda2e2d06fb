/* The sparse matrix of CG (RNR-94-007): computes the rows that one rank owns. */
#include "cg_matrix.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "random.h"

static const uint64_t seed = 314159265;
static const double condition = 0.1;

struct MatrixPlan {
    int n, first, rows, width; /* width: elements of a vector at most */
    double shift;
    int *length, *place; /* vector i: length[i] elements at place[i*width], element[i*width] */
    double *element;
    long *where; /* column c occurs in vectors holder[where[c]] to holder[where[c+1]] */
    int *holder;
    long *start; /* rows + 1 */
};

static void *memory(size_t count, size_t size) {
    void *pointer = calloc(count, size);
    if (!pointer)
        fail("out of memory");
    return pointer;
}

/* One vector: value, then place, drawn in turn; a place beyond n or met before is drawn again with a new
   value. The place is scaled by the power of two from n on. The diagonal element is set to 1/2, added if
   absent. */
static int draw_vector(uint64_t *state, int n, int nonzer, int diagonal, int *place, double *element,
                       int *seen) {
    int power = 1, length = 0;
    while (power < n)
        power *= 2;
    while (length < nonzer) {
        double value = random_next(state);
        int at = (int)(power * random_next(state));
        if (at >= n || seen[at] == diagonal + 1)
            continue;
        seen[at] = diagonal + 1;
        place[length] = at;
        element[length++] = value;
    }
    for (int k = 0; k < length; k++)
        if (place[k] == diagonal) {
            element[k] = 0.5;
            return length;
        }
    place[length] = diagonal;
    element[length] = 0.5;
    return length + 1;
}

static void draw_vectors(MatrixPlan *p, int nonzer) {
    uint64_t state = seed;
    random_next(&state); /* the reference discards the first */
    int *seen = memory((size_t)p->n, sizeof *seen);
    for (int i = 0; i < p->n; i++) {
        size_t at = (size_t)i * (size_t)p->width;
        p->length[i] = draw_vector(&state, p->n, nonzer, i, p->place + at, p->element + at, seen);
    }
    free(seen);
}

/* Which vectors hold column c, in ascending order. */
static void index_columns(MatrixPlan *p) {
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->length[i]; k++)
            p->where[p->place[(size_t)i * (size_t)p->width + (size_t)k] + 1]++;
    for (int c = 0; c < p->n; c++)
        p->where[c + 1] += p->where[c];
    p->holder = memory((size_t)p->where[p->n], sizeof *p->holder);
    long *next = memory((size_t)p->n, sizeof *next);
    memcpy(next, p->where, (size_t)p->n * sizeof *next);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->length[i]; k++)
            p->holder[next[p->place[(size_t)i * (size_t)p->width + (size_t)k]]++] = i;
    free(next);
}

/* Calls visit(row, column, vector i, element in the row's place, element in the column's place) for every
   product that falls on an owned row: columns ascending, vectors ascending within a column. So the entries of
   a row come out sorted and equal ones follow each other: nothing has to be sorted or stored twice. */
typedef void Visit(void *context, int row, int column, int vector, double product);

static void each_product(const MatrixPlan *p, Visit *visit, void *context) {
    for (int c = 0; c < p->n; c++)
        for (long h = p->where[c]; h < p->where[c + 1]; h++) {
            int i = p->holder[h];
            const int *place = p->place + (size_t)i * (size_t)p->width;
            const double *element = p->element + (size_t)i * (size_t)p->width;
            double of_column = 0;
            for (int k = 0; k < p->length[i]; k++)
                if (place[k] == c)
                    of_column = element[k];
            for (int k = 0; k < p->length[i]; k++) {
                int row = place[k] - p->first;
                if (row >= 0 && row < p->rows)
                    visit(context, row, c, i, element[k] * of_column);
            }
        }
}

typedef struct {
    int *last; /* column of the row's last entry, -1 before the first */
    long *count;
} Counting;

static void count_entry(void *context, int row, int column, int vector, double product) {
    (void)vector;
    (void)product;
    Counting *counting = context;
    if (counting->last[row] != column) {
        counting->last[row] = column;
        counting->count[row]++;
    }
}

MatrixPlan *matrix_plan(int n, int nonzer, double shift, int first, int rows) {
    MatrixPlan *p = memory(1, sizeof *p);
    *p = (MatrixPlan){.n = n, .first = first, .rows = rows, .width = nonzer + 1, .shift = shift};
    p->length = memory((size_t)n, sizeof *p->length);
    p->place = memory((size_t)n * (size_t)p->width, sizeof *p->place);
    p->element = memory((size_t)n * (size_t)p->width, sizeof *p->element);
    p->where = memory((size_t)n + 1, sizeof *p->where);
    p->start = memory((size_t)rows + 1, sizeof *p->start);
    draw_vectors(p, nonzer);
    index_columns(p);
    Counting counting = {.last = memory((size_t)rows, sizeof(int)), .count = p->start + 1};
    for (int row = 0; row < rows; row++)
        counting.last[row] = -1;
    each_product(p, count_entry, &counting);
    free(counting.last);
    for (int row = 0; row < rows; row++)
        p->start[row + 1] += p->start[row];
    return p;
}

size_t matrix_need(const MatrixPlan *p) {
    size_t entries = (size_t)p->start[p->rows];
    return arena_need(((size_t)p->rows + 1) * sizeof(long)) + arena_need(entries * sizeof(int)) +
           arena_need(entries * sizeof(double));
}

typedef struct {
    const MatrixPlan *plan;
    const Matrix *matrix;
    const double *weight;
    long *next; /* where the row's next entry goes */
} Filling;

static void fill_entry(void *context, int row, int column, int vector, double product) {
    Filling *f = context;
    long at = f->next[row];
    bool goes_on = at > f->matrix->start[row] && f->matrix->column[at - 1] == column;
    if (goes_on)
        at--;
    else {
        f->next[row]++;
        f->matrix->column[at] = column;
        f->matrix->value[at] = column == row + f->plan->first ? condition - f->plan->shift : 0;
    }
    f->matrix->value[at] += f->weight[vector] * product;
}

Matrix matrix_make(MatrixPlan *p, Arena *arena) {
    size_t entries = (size_t)p->start[p->rows];
    Matrix matrix = {.rows = p->rows};
    matrix.start = arena_take(arena, ((size_t)p->rows + 1) * sizeof(long));
    matrix.column = arena_take(arena, entries * sizeof(int));
    matrix.value = arena_take(arena, entries * sizeof(double));
    memcpy(matrix.start, p->start, ((size_t)p->rows + 1) * sizeof(long));

    double *weight = memory((size_t)p->n, sizeof *weight), ratio = pow(condition, 1.0 / p->n), size = 1;
    for (int i = 0; i < p->n; i++, size *= ratio)
        weight[i] = size;
    Filling filling = {.plan = p, .matrix = &matrix, .weight = weight};
    filling.next = memory((size_t)p->rows, sizeof(long));
    memcpy(filling.next, p->start, (size_t)p->rows * sizeof(long));
    each_product(p, fill_entry, &filling);

    free(filling.next);
    free(weight);
    free(p->length);
    free(p->place);
    free(p->element);
    free(p->where);
    free(p->holder);
    free(p->start);
    free(p);
    return matrix;
}
