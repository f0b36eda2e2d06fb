/* The problem that LU solves: the exact solution on the walls, values between them by transfinite
   interpolation, and the forcing that makes the exact solution the steady state. */
#include "lu.h"

/* Count, for each inner point of a plane, the walls next to it (flow->walls). */
static void count_walls(Flow *f) {
    const Grid *g = &f->grid;
    for (int i = g->ilo; i <= g->ihi; i++)
        for (int j = g->jlo; j <= g->jhi; j++) {
            int x = g->first_i + i, y = g->first_j + j, last = g->n - 2;
            f->walls[layout_at(&g->inner, i, j)] = (x == 1) + (x == last) + (y == 1) + (y == last);
        }
}

static size_t walls_need(const Grid *grid) {
    return (size_t)grid->inner.plane * sizeof(double);
}

/* Return the bytes of u, the residual and the forcing, which follow each other. */
static size_t fields_need(const Grid *grid) {
    return arena_packed(layout_need(&grid->whole, grid->n)) +
           2 * arena_packed(layout_need(&grid->inner, grid->n - 2));
}

size_t flow_need(const Grid *grid) {
    const Layout *whole = &grid->whole, *inner = &grid->inner;
    return arena_need(fields_need(grid)) + arena_need(layout_need(whole, SCRATCH)) +
           arena_need(layout_need(inner, 1)) + arena_need(edge_need(grid)) + arena_need(walls_need(grid)) +
           lu_exchange_need(grid);
}

Flow flow_make(const Grid *grid, double dt, Arena *arena) {
    char *u = arena_take(arena, fields_need(grid));
    char *residual = u + arena_packed(layout_need(&grid->whole, grid->n));
    char *forcing = residual + arena_packed(layout_need(&grid->inner, grid->n - 2));
    Flow f = {.grid = *grid,
              .dt = dt,
              .u = (double *)u,
              .residual = (double *)residual,
              .forcing = (double *)forcing,
              .scratch = layout_take(&grid->whole, SCRATCH, arena),
              .incoming = layout_take(&grid->inner, 1, arena),
              .edge = arena_take(arena, edge_need(grid)),
              .walls = arena_take(arena, walls_need(grid))};
    f.exchange = lu_exchange_make(grid, arena);
    count_walls(&f);
    return f;
}

static void exact_at(int n, int x, int y, int z, double fields[CFD_FIELDS]) {
    double last = n - 1;
    cfd_exact(x / last, y / last, z / last, fields);
}

/* Interpolate the fields at a point from the six points of the walls that lie in each direction from it. */
static void interpolate(int n, const int at[3], double fields[CFD_FIELDS]) {
    double between[3][CFD_FIELDS];
    for (int direction = 0; direction < 3; direction++) {
        double begin[CFD_FIELDS], end[CFD_FIELDS], share = (double)at[direction] / (n - 1);
        int wall[3] = {at[0], at[1], at[2]};
        wall[direction] = 0;
        exact_at(n, wall[0], wall[1], wall[2], begin);
        wall[direction] = n - 1;
        exact_at(n, wall[0], wall[1], wall[2], end);
        for (int m = 0; m < CFD_FIELDS; m++)
            between[direction][m] = (1 - share) * begin[m] + share * end[m];
    }
    for (int m = 0; m < CFD_FIELDS; m++) {
        double x = between[0][m], y = between[1][m], z = between[2][m];
        fields[m] = x + y + z - x * y - y * z - z * x + x * y * z;
    }
}

static bool on_wall(int n, const int at[3]) {
    for (int direction = 0; direction < 3; direction++)
        if (at[direction] == 0 || at[direction] == n - 1)
            return true;
    return false;
}

/* Set this rank's points: the exact solution on the walls and, if `exact`, everywhere; else interpolated
   values between the walls. */
static void fill(Flow *f, bool exact) {
    const Grid *g = &f->grid;
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->nj; j++)
            for (int i = 0; i < g->ni; i++) {
                int at[3] = {g->first_i + i, g->first_j + j, k};
                double fields[CFD_FIELDS];
                if (exact || on_wall(g->n, at))
                    exact_at(g->n, at[0], at[1], at[2], fields);
                else
                    interpolate(g->n, at, fields);
                for (int m = 0; m < CFD_FIELDS; m++)
                    layout_field(&g->whole, f->u, k, m)[layout_at(&g->whole, i, j)] = fields[m];
            }
}

void flow_begin(Flow *f) {
    const Grid *g = &f->grid;
    long all = g->n * CFD_FIELDS * g->whole.plane, inner = (g->n - 2) * CFD_FIELDS * g->inner.plane;
    for (long at = 0; at < all; at++)
        f->u[at] = 1; /* the ghosts behind walls, too: any density but 0 */
    for (long at = 0; at < inner; at++)
        f->forcing[at] = 0;
    fill(f, true);
    lu_exchange_halo(&f->exchange, g, f->u);
    compute_residual(f, flow_planes(f));
    for (long at = 0; at < inner; at++)
        f->forcing[at] = f->residual[at];
    fill(f, false);
    lu_exchange_halo(&f->exchange, g, f->u);
}
