#include "bt_sweep.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "bt_turn.h"
#include "fail.h"

/* A sweep processes a cell in slabs: planes k for lines along x and y, and rows j of all planes for lines
   along z. The lines of a slab are next to each other along another axis. */
static const int slabs_along[AXES] = {Z, Z, Y};
static const int groups_along[AXES] = {Y, X, X};

static int groups_of(const Cell *cell, int axis) {
    return inner_groups(cell, groups_along[axis]);
}

static long slabs_of(const Cell *cell, int axis) {
    return inner_points(cell, slabs_along[axis]);
}

/* Return the number of groups of lanes in all slabs of a cell. */
static size_t groups_across(const Cell *cell, int axis) {
    return (size_t)slabs_of(cell, axis) * (size_t)groups_of(cell, axis);
}

static size_t kept_of(const Cell *cell, int axis) {
    return groups_across(cell, axis) * (size_t)inner_points(cell, axis);
}

/* Return the bytes that elimination keeps for cells that are not the last along their lines, for the axis
   that needs most. */
static size_t kept_need(const Cells *cells) {
    size_t most = 0;
    for (int axis = 0; axis < AXES; axis++) {
        size_t kept = 0;
        for (int layer = 0; layer < cells->q - 1; layer++)
            kept += kept_of(cells_layer(cells, axis, layer), axis);
        if (kept > most)
            most = kept;
    }
    return most * sizeof(Kept);
}

static size_t largest_message(const Cells *cells) {
    size_t most = 0;
    for (int axis = 0; axis < AXES; axis++)
        for (int s = 0; s < cells->q; s++)
            if (groups_across(&cells->cell[s], axis) > most)
                most = groups_across(&cells->cell[s], axis);
    return most * sizeof(Kept);
}

static size_t worker_kept(const Cells *cells) {
    return (size_t)cells_longest(cells) * BUNDLE * sizeof(Kept);
}

static size_t worker_need(const Cells *cells) {
    return arena_need(rhs_derived_need(cells)) + 2 * arena_need(turned_bytes(cells)) +
           arena_need(worker_kept(cells));
}

Flow bt_flow(int n, double dt, int threads, Pages pages, const World *world, Arena *arena) {
    Flow flow = {.cells = cells_make(n, world), .dt = dt, .rhs = rhs_factors(n, dt), .threads = threads};
    const Cells *cells = &flow.cells;
    flow.lines[X] = line_factors(n, dt, cfd_dx);
    flow.lines[Y] = line_factors(n, dt, cfd_dy);
    flow.lines[Z] = line_factors(n, dt, cfd_dz);
    flow.worker = calloc((size_t)threads, sizeof *flow.worker);
    if (!flow.worker)
        fail("out of memory");
    *arena = arena_make(cells_need(cells) + rhs_weights_need(cells) +
                            bt_exchange_need(cells, largest_message(cells)) + arena_need(kept_need(cells)) +
                            (size_t)threads * worker_need(cells),
                        pages);
    cells_take(&flow.cells, arena);
    rhs_weights(cells, &flow.rhs, arena);
    flow.exchange = bt_exchange_make(cells, largest_message(cells), arena);
    flow.kept = arena_take(arena, kept_need(cells));
    for (int t = 0; t < threads; t++)
        flow.worker[t] = (Worker){.derived = arena_take(arena, rhs_derived_need(cells)),
                                  .u = arena_take(arena, turned_bytes(cells)),
                                  .rhs = arena_take(arena, turned_bytes(cells)),
                                  .kept = arena_take(arena, worker_kept(cells))};
    return flow;
}

void bt_flow_free(Flow *flow) {
    cells_free(&flow->cells);
    free(flow->worker);
}

/* Lines that are solved together. at: index of their first group among all groups of the cell. */
typedef struct {
    const Flow *flow;
    const Cell *cell;
    const Worker *worker;
    int axis, slab, group;
    size_t at;
    Lines lines;
} Bundle;

/* Return the lines of a bundle. Lines along x are transposed: u now, rhs when it is needed. Others are solved
 * in place. */
static Lines lines_of(const Bundle *b) {
    const Cell *cell = b->cell;
    int left = groups_of(cell, b->axis) - b->group;
    Lines lines = {.points = inner_points(cell, b->axis), .groups = left < BUNDLE ? left : BUNDLE};
    long field = b->axis == X ? turned_at(0, 1) * LANES : cell->field;
    for (int m = 0; m < AXES; m++)
        lines.field[1 + m] = (1 + (b->axis + 1 + m) % AXES) * field;
    lines.field[CFD_FIELDS - 1] = (CFD_FIELDS - 1) * field;
    lines.group = LANES;
    if (b->axis == X) {
        lines.step = turned_at(1, 0) * LANES;
        lines.u = (double *)b->worker->u + lines.step;
        lines.rhs = (double *)b->worker->rhs;
        for (int g = 0; g < lines.groups; g++)
            turn_in(cell, cell->u, b->slab, b->group + g, cell->begin[X] - 1, lines.points + 2,
                    b->worker->u + g);
    } else {
        long at =
            point_at(cell, cell->begin[X] + b->group * LANES, cell->begin[Y] + (b->axis == Z ? b->slab : 0),
                     cell->begin[Z] + (b->axis == Y ? b->slab : 0));
        lines.step = cell->step[b->axis];
        lines.u = cell->u + at;
        lines.rhs = cell->rhs + at;
    }
    return lines;
}

static Bundle bundle_of(const Flow *flow, const Cell *cell, const Worker *worker, int axis, int slab,
                        int group) {
    Bundle b = {.flow = flow, .cell = cell, .worker = worker, .axis = axis, .slab = slab, .group = group};
    b.at = (size_t)slab * (size_t)groups_of(cell, axis) + (size_t)group;
    b.lines = lines_of(&b);
    return b;
}

/* The last of the three sweeps adds the changes to u. */
static void substitute(const Bundle *b, const Kept *kept, const Solved *behind) {
    Solved *first = b->cell->layer[b->axis] > 0 ? (Solved *)b->flow->exchange.sent + b->at : NULL;
    lines_substitute(&b->lines, kept, behind, b->axis == Z ? ADD_TO_U : REPLACE_RHS, first);
    if (b->axis == X)
        for (int g = 0; g < b->lines.groups; g++)
            turn_back(b->cell, b->cell->rhs, b->slab, b->group + g, b->worker->rhs + g);
}

static void eliminate(const Bundle *b, Kept *kept) {
    const Cell *cell = b->cell;
    if (b->axis == X)
        for (int g = 0; g < b->lines.groups; g++)
            turn_in(cell, cell->rhs, b->slab, b->group + g, cell->begin[X], b->lines.points,
                    b->worker->rhs + g);
    const Kept *before = cell->layer[b->axis] > 0 ? (const Kept *)b->flow->exchange.received + b->at : NULL;
    lines_eliminate(&b->lines, &b->flow->lines[b->axis], before, kept);
}

/* Eliminate a slab. In the last layer of cells, also substitute it. */
static void eliminate_slab(const Flow *flow, const Cell *cell, const Worker *worker, int axis, int slab,
                           Kept *kept) {
    bool last = cell->layer[axis] == flow->cells.q - 1;
    for (int group = 0; group < groups_of(cell, axis); group += BUNDLE) {
        Bundle b = bundle_of(flow, cell, worker, axis, slab, group);
        size_t points = (size_t)b.lines.points, groups = (size_t)b.lines.groups;
        if (last) {
            eliminate(&b, worker->kept);
            substitute(&b, worker->kept, NULL);
        } else {
            eliminate(&b, kept + b.at * points);
            memcpy((Kept *)flow->exchange.sent + b.at, kept + b.at * points + (points - 1) * groups,
                   groups * sizeof *kept);
        }
    }
}

/* Substitute a slab of a cell that is not in the last layer. */
static void substitute_slab(const Flow *flow, const Cell *cell, const Worker *worker, int axis, int slab,
                            const Kept *kept) {
    for (int group = 0; group < groups_of(cell, axis); group += BUNDLE) {
        Bundle b = bundle_of(flow, cell, worker, axis, slab, group);
        substitute(&b, kept + b.at * (size_t)b.lines.points, (const Solved *)flow->exchange.received + b.at);
    }
}

/* The work of a thread on its share of a cell's slabs. */
typedef struct {
    const Flow *flow;
    const Cell *cell;
    int axis;
    Kept *kept;
} Task;
typedef void Work(const Task *task, const Worker *worker, int begin, int end);

static void share_out(const Task *task, Work *work) {
    long slabs = slabs_of(task->cell, task->axis);
#pragma omp parallel num_threads(task->flow->threads) if (task->flow->threads > 1)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        long begin = share_begin(slabs, thread, threads), end = share_begin(slabs, thread + 1, threads);
        if (begin < end)
            work(task, &task->flow->worker[thread], (int)begin, (int)end);
    }
}

static void residual_work(const Task *task, const Worker *worker, int begin, int end) {
    const Cell *cell = task->cell;
    rhs_begin(cell, worker->derived, cell->begin[Z] + begin);
    for (int slab = begin; slab < end; slab++)
        rhs_plane(&task->flow->cells, cell, &task->flow->rhs, worker->derived, cell->begin[Z] + slab);
}

/* The sweep along x processes one plane after the other. It computes the right-hand side of each plane before
   and, if the whole grid is one cell, does the sweep along y after, while the plane is in the cache. */
static void eliminate_work(const Task *task, const Worker *worker, int begin, int end) {
    const Flow *flow = task->flow;
    const Cell *cell = task->cell;
    if (task->axis == X)
        rhs_begin(cell, worker->derived, cell->begin[Z] + begin);
    for (int slab = begin; slab < end; slab++) {
        if (task->axis == X)
            rhs_plane(&flow->cells, cell, &flow->rhs, worker->derived, cell->begin[Z] + slab);
        eliminate_slab(flow, cell, worker, task->axis, slab, task->kept);
        if (task->axis == X && flow->cells.q == 1)
            eliminate_slab(flow, cell, worker, Y, slab, task->kept);
    }
}

static void substitute_work(const Task *task, const Worker *worker, int begin, int end) {
    for (int slab = begin; slab < end; slab++)
        substitute_slab(task->flow, task->cell, worker, task->axis, slab, task->kept);
}

static void sweep(Flow *flow, int axis) {
    const Cells *cells = &flow->cells;
    Task task = {.flow = flow, .axis = axis, .kept = flow->kept};
    for (int layer = 0; layer < cells->q; layer++) {
        task.cell = cells_layer(cells, axis, layer);
        share_out(&task, eliminate_work);
        if (layer == cells->q - 1)
            break;
        size_t groups = groups_across(task.cell, axis);
        size_t next = groups_across(cells_layer(cells, axis, layer + 1), axis);
        bt_hand_on(&flow->exchange, cells, axis, false, groups * sizeof(Kept), next * sizeof(Kept));
        task.kept += kept_of(task.cell, axis);
    }
    for (int layer = cells->q - 2; layer >= 0; layer--) {
        size_t groups = groups_across(task.cell, axis);
        task.cell = cells_layer(cells, axis, layer);
        size_t next = groups_across(task.cell, axis);
        bt_hand_on(&flow->exchange, cells, axis, true, groups * sizeof(Solved), next * sizeof(Solved));
        task.kept -= kept_of(task.cell, axis);
        share_out(&task, substitute_work);
    }
}

void bt_residual(Flow *flow) {
    bt_exchange_halo(&flow->exchange, &flow->cells);
    for (int s = 0; s < flow->cells.q; s++)
        share_out(&(Task){.flow = flow, .cell = &flow->cells.cell[s], .axis = X}, residual_work);
}

void bt_step(Flow *flow) {
    bt_exchange_halo(&flow->exchange, &flow->cells);
    sweep(flow, X);
    if (flow->cells.q > 1)
        sweep(flow, Y);
    sweep(flow, Z);
}
