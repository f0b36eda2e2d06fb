#include "bt_cells.h"

#include <stdlib.h>

#include "fail.h"

/* Numbers before the first point of an array and behind its last that stencils and full lanes may touch. */
enum { GUARD = 2 * LANES };

/* Rows and planes at distances that are multiples of 4 lines of the cache would share few of its sets. */
static long off_the_sets(long numbers) {
    enum { LINE = 8 };
    return numbers % (4 * LINE) == 0 ? numbers + LINE : numbers;
}

static void lay_out(Cell *cell) {
    cell->step[X] = 1;
    cell->step[Y] = off_the_sets(LANES * (1 + inner_groups(cell, X)));
    cell->field = off_the_sets(cell->step[Y] * (cell->count[Y] + 2 * GHOSTS));
    cell->step[Z] = CFD_FIELDS * cell->field;
}

static Cell make_cell(const Cells *cells, const int layer[AXES]) {
    Cell cell = {.field = 0};
    for (int axis = 0; axis < AXES; axis++) {
        cell.layer[axis] = layer[axis];
        cell.first[axis] = (int)share_begin(cells->n, layer[axis], cells->q);
        cell.count[axis] = (int)share_begin(cells->n, layer[axis] + 1, cells->q) - cell.first[axis];
        cell.begin[axis] = layer[axis] == 0;
        cell.end[axis] = cell.count[axis] - (layer[axis] == cells->q - 1);
    }
    lay_out(&cell);
    return cell;
}

/* Rank (a, b) holds the cells (a + s, b + s, s) modulo q, so the neighbour in z of each is with (a-1, b-1).
 */
Cells cells_make(int n, const World *world) {
    Cells cells = {.n = n, .q = 1};
    while ((cells.q + 1) * (cells.q + 1) <= world->size)
        cells.q++;
    int q = cells.q, most = n / GHOSTS;
    if (q * q != world->size || q > most)
        fail("bt: runs on 1, 4, 9, ... %d ranks, not on %d", most * most, world->size);
    int a = world->rank / q, b = world->rank % q;
    static const int next[AXES][2] = {{1, 0}, {0, 1}, {-1, -1}};
    for (int axis = 0; axis < AXES; axis++) {
        cells.after[axis] = (a + next[axis][0] + q) % q * q + (b + next[axis][1] + q) % q;
        cells.before[axis] = (a - next[axis][0] + q) % q * q + (b - next[axis][1] + q) % q;
    }
    cells.cell = calloc((size_t)q, sizeof *cells.cell);
    if (!cells.cell)
        fail("out of memory");
    for (int s = 0; s < q; s++)
        cells.cell[s] = make_cell(&cells, (const int[AXES]){(a + s) % q, (b + s) % q, s});
    return cells;
}

void cells_free(Cells *cells) {
    free(cells->cell);
}

/* u has ghosts along z, rhs and forcing have none. */
static long numbers(const Cell *cell, int ghosts) {
    return cell->step[Z] * (cell->count[Z] + 2 * ghosts) + 2 * GUARD;
}

/* Point (0, 0, 0) behind the start of an array. */
static long origin(const Cell *cell, int ghosts) {
    return GUARD + LANES - cell->begin[X] + point_at(cell, 0, GHOSTS, ghosts);
}

static size_t bytes_of_all(const Cells *cells, int ghosts) {
    size_t bytes = 0;
    for (int s = 0; s < cells->q; s++)
        bytes += (size_t)numbers(&cells->cell[s], ghosts) * sizeof(double);
    return bytes;
}

size_t cells_need(const Cells *cells) {
    return arena_need(bytes_of_all(cells, GHOSTS)) + 2 * arena_need(bytes_of_all(cells, 0));
}

void cells_take(Cells *cells, Arena *arena) {
    double *u = arena_take(arena, bytes_of_all(cells, GHOSTS));
    double *rhs = arena_take(arena, bytes_of_all(cells, 0));
    double *forcing = arena_take(arena, bytes_of_all(cells, 0));
    for (int s = 0; s < cells->q; s++) {
        Cell *cell = &cells->cell[s];
        cell->u = u + origin(cell, GHOSTS);
        cell->rhs = rhs + origin(cell, 0);
        cell->forcing = forcing + origin(cell, 0);
        u += numbers(cell, GHOSTS);
        rhs += numbers(cell, 0);
        forcing += numbers(cell, 0);
    }
}

Cell *cells_layer(const Cells *cells, int axis, int layer) {
    for (int s = 0; s < cells->q; s++)
        if (cells->cell[s].layer[axis] == layer)
            return &cells->cell[s];
    fail("bt: no cell in layer %d of axis %d", layer, axis);
}

long cells_largest_field(const Cells *cells) {
    long largest = 0;
    for (int s = 0; s < cells->q; s++)
        if (cells->cell[s].field > largest)
            largest = cells->cell[s].field;
    return largest;
}

int cells_longest(const Cells *cells) {
    int longest = 0;
    for (int s = 0; s < cells->q; s++)
        for (int axis = 0; axis < AXES; axis++)
            if (inner_points(&cells->cell[s], axis) > longest)
                longest = inner_points(&cells->cell[s], axis);
    return longest;
}

static void fill_at_rest(const Cell *cell) {
    double *start = cell->u - origin(cell, GHOSTS);
    for (long at = 0; at < numbers(cell, GHOSTS); at++)
        start[at] = 0;
    for (int k = -GHOSTS; k < cell->count[Z] + GHOSTS; k++) {
        double *density = start + GUARD + (k + GHOSTS) * cell->step[Z];
        for (long at = 0; at < cell->field; at++)
            density[at] = density[at + (CFD_FIELDS - 1) * cell->field] = 1;
    }
}

static void fill_cell(const Cells *cells, const Cell *cell, FieldsAt *fields_at) {
    const int *first = cell->first, *count = cell->count;
    /* Divided, not multiplied by an inverse: the far wall then lies at 1 for every n (161 / 161, class C). */
    double last = cells->n - 1, fields[CFD_FIELDS];
    for (int k = -GHOSTS; k < count[Z] + GHOSTS; k++)
        for (int j = -GHOSTS; j < count[Y] + GHOSTS; j++)
            for (int i = -GHOSTS; i < count[X] + GHOSTS; i++) {
                int x = first[X] + i, y = first[Y] + j, z = first[Z] + k;
                if (x < 0 || y < 0 || z < 0 || x >= cells->n || y >= cells->n || z >= cells->n)
                    continue;
                fields_at(x / last, y / last, z / last, fields);
                for (int m = 0; m < CFD_FIELDS; m++)
                    cell->u[point_at(cell, i, j, k) + m * cell->field] = fields[m];
            }
}

void cells_fill(const Cells *cells, FieldsAt *fields_at) {
    for (int s = 0; s < cells->q; s++) {
        fill_at_rest(&cells->cell[s]);
        fill_cell(cells, &cells->cell[s], fields_at);
    }
}
