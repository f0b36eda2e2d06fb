/* The passes of MG. The grid is divided into columns, ranges of rows in all planes, which are distributed to
   the threads. Along a column, operators follow each other plane by plane, and keep the last planes in rings.
 */
#include "mg_pass.h"

#include <omp.h>
#include <stddef.h>

#include "mg_lines.h"

enum {
    RING = 4,             /* planes of a ring: three in use, a power of two for the mask */
    PAD = 8,              /* doubles: rows of a ring do not lie 2^k apart, and begin a cache line */
    ROOM = 704 * 1024,    /* bytes of both rings: what the second-level cache of a core holds with ease */
    LEAST_POINTS = 32768, /* of a grid that is worth threads */
};

/* Rows y0 to y1 - 1 of planes 0 to planes - 1. All three are even. */
typedef struct {
    long y0, y1, planes;
} Column;

typedef struct {
    const Grid *out, *u, *z, *v;
    const double *smoother;
    double *sum; /* of this column */
} Work;

typedef void ColumnPass(const Work *work, Column c, double *room);

static long most_rows(long n) {
    long rows = ROOM / ((long)sizeof(double) * 2 * RING * (n + PAD)) / 2 * 2;
    return rows < 4 ? 4 : rows;
}

/* Return the bytes of a thread: two rows of scratch memory and both rings, which are at most four rows wider
   than the column. */
static size_t room_bytes(long n) {
    size_t rows = (size_t)(most_rows(n) < n ? most_rows(n) : n) + 4;
    return (2 * (size_t)(n + 2 * PAD) + 2 * RING * rows * (size_t)(n + PAD)) * sizeof(double);
}

size_t crew_need(long n, int threads) {
    return arena_need((size_t)threads * room_bytes(n)) + arena_need((size_t)n * sizeof(double));
}

Crew crew_make(Arena *arena, long n, int threads) {
    Crew crew = {.threads = threads, .room_bytes = room_bytes(n)};
    crew.room = arena_take(arena, (size_t)threads * crew.room_bytes);
    crew.sums = arena_take(arena, (size_t)n * sizeof(double));
    return crew;
}

/* Return the number of columns: the same for each thread, if there are enough rows. */
static long columns_of(const Grid *g, int threads) {
    long most = most_rows(g->nx), columns = (g->ny + most - 1) / most;
    columns = (columns + threads - 1) / threads * threads;
    return columns < g->ny / 2 ? columns : g->ny / 2;
}

static void do_column(const Grid *g, long planes, ColumnPass *pass, const Work *work, long column,
                      long columns, double *room) {
    long pairs = g->ny / 2;
    Column c = {2 * share_begin(pairs, column, columns), 2 * share_begin(pairs, column + 1, columns), planes};
    pass(work, c, room);
}

/* Divide g into columns and process them. Return their number. */
static long do_columns(const Crew *crew, const Grid *g, long planes, ColumnPass *pass, Work work) {
    int threads = g->nx * g->ny * planes < LEAST_POINTS ? 1 : crew->threads;
    long columns = planes > 0 ? columns_of(g, threads) : 0;
    if (threads == 1) {
        for (long c = 0; c < columns; c++) {
            work.sum = &crew->sums[c];
            do_column(g, planes, pass, &work, c, columns, crew->room);
        }
        return columns;
    }
#pragma omp parallel for num_threads(threads) schedule(static) firstprivate(work)
    for (long c = 0; c < columns; c++) {
        double *room = crew->room + (size_t)omp_get_thread_num() * crew->room_bytes / sizeof(double);
        work.sum = &crew->sums[c];
        do_column(g, planes, pass, &work, c, columns, room);
    }
    return columns;
}

/* Return a ring that holds the last planes of `rows` rows from row `first` on. */
static Grid ring(double **room, long n, long first, long rows) {
    Grid g = {.data = *room, .nx = n, .line = n + PAD, .plane = (n + PAD) * rows};
    g.z_mask = RING - 1;
    g.y_shift = -first;
    g.y_mask = -1;
    *room += RING * g.plane;
    return g;
}

static double *take_row(double **room, long n) {
    double *w = *room + PAD;
    *room += n + 2 * PAD;
    return w;
}

static void residual_column(const Work *k, Column c, double *room) {
    long n = k->u->nx;
    double *w = take_row(&room, n);
    Grid r = ring(&room, n, c.y0, c.y1 + 1 - c.y0);
    for (long z = 0; z <= c.planes; z++) {
        for (long y = c.y0; y <= c.y1; y++)
            residual_line(row(&r, z, y), row(k->v, z, y), rows_around(k->u, z, y), w, n);
        if (z > 0 && z % 2 == 0)
            for (long y = c.y0 + 1; y < c.y1; y += 2)
                restrict_line(row(k->out, z / 2 - 1, y / 2), rows_around(&r, z - 1, y), w, n);
    }
}

void pass_residual(const Crew *crew, const Grid *coarse, const Grid *v, const Grid *u, long planes) {
    do_columns(crew, u, planes, residual_column, (Work){.out = coarse, .v = v, .u = u});
}

static void restrict_column(const Work *k, Column c, double *room) {
    long n = k->v->nx;
    double *w = take_row(&room, n);
    for (long z = 1; z < c.planes; z += 2)
        for (long y = c.y0 + 1; y < c.y1; y += 2)
            restrict_line(row(k->out, z / 2, y / 2), rows_around(k->v, z, y), w, n);
}

void pass_restrict(const Crew *crew, const Grid *coarse, const Grid *r, long planes) {
    do_columns(crew, r, planes, restrict_column, (Work){.out = coarse, .v = r});
}

/* Compute plane z of w, then plane z - 1 of v - A w, then plane z - 2 of the result, for each z. Each stage
   needs the previous stage up to one row and one plane further. */
static void correct_column(const Work *k, Column c, double *room) {
    long n = k->out->nx;
    double *w = take_row(&room, n);
    Grid u = ring(&room, n, c.y0 - 2, c.y1 + 4 - c.y0), r = ring(&room, n, c.y0 - 1, c.y1 + 2 - c.y0);
    for (long z = -2; z < c.planes + 2; z++) {
        for (long y = c.y0 - 2; y < c.y1 + 2; y++)
            interpolate_line(row(&u, z, y), k->u ? row(k->u, z, y) : NULL, k->z, z, y, w, n);
        for (long y = c.y0 - 1; z >= 0 && y < c.y1 + 1; y++)
            residual_line(row(&r, z - 1, y), row(k->v, z - 1, y), rows_around(&u, z - 1, y), w, n);
        for (long y = c.y0; z >= 2 && y < c.y1; y++)
            smooth_line(row(k->out, z - 2, y), row(&u, z - 2, y), rows_around(&r, z - 2, y), k->smoother, w,
                        n);
    }
}

void pass_correct(const Crew *crew, const Grid *out, const Grid *u, const Grid *z, const Grid *v,
                  const double *smoother, long planes) {
    do_columns(crew, out, planes, correct_column,
               (Work){.out = out, .u = u, .z = z, .v = v, .smoother = smoother});
}

static void smooth_column(const Work *k, Column c, double *room) {
    long n = k->out->nx;
    double *w = take_row(&room, n);
    for (long z = 0; z < c.planes; z++)
        for (long y = c.y0; y < c.y1; y++)
            smooth_line(row(k->out, z, y), NULL, rows_around(k->v, z, y), k->smoother, w, n);
}

void pass_smooth(const Crew *crew, const Grid *out, const Grid *r, const double *smoother) {
    do_columns(crew, out, out->nz, smooth_column, (Work){.out = out, .v = r, .smoother = smoother});
}

static void norm_column(const Work *k, Column c, double *room) {
    long n = k->u->nx;
    double *w = take_row(&room, n), *r = take_row(&room, n), sum = 0;
    for (long z = 0; z < c.planes; z++)
        for (long y = c.y0; y < c.y1; y++) {
            residual_line(r, row(k->v, z, y), rows_around(k->u, z, y), w, n);
#pragma omp simd reduction(+ : sum)
            for (long x = 0; x < n; x++)
                sum += r[x] * r[x];
        }
    *k->sum = sum;
}

double pass_norm(const Crew *crew, const Grid *v, const Grid *u) {
    long columns = do_columns(crew, u, u->nz, norm_column, (Work){.v = v, .u = u});
    double sum = 0;
    for (long c = 0; c < columns; c++)
        sum += crew->sums[c];
    return sum;
}
