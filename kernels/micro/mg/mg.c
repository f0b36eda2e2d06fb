/* MG (RNR-94-007): four or twenty V-cycles of multigrid for Poisson's equation with periodic boundaries. The
   fine grids are divided among the ranks. Grids that are too small for this are processed as a whole by every
   rank, from a residual that is gathered from all ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "kernel.h"
#include "mg_charges.h"
#include "mg_grid.h"
#include "mg_pass.h"

enum {
    MOST_LEVELS = 9,
    SHARED_BELOW = 16, /* points in each direction: up to here messages cost more than the grid */
};

static const double smoother_a[] = {-3.0 / 8, 1.0 / 32, -1.0 / 64}, /* classes S, W, A */
    smoother_b[] = {-3.0 / 17, 1.0 / 33, -1.0 / 61};                /* the larger ones */

static const char *const class_names[] = {"S", "W", "A", "B", "C"};
static const struct {
    int levels, iterations; /* 2^levels points in each direction */
    const double *smoother;
    double norm;
} classes[] = {
    {5, 4, smoother_a, 0.5307707005734e-4},  {7, 4, smoother_a, 0.6467329375339e-5},
    {8, 4, smoother_a, 0.2433365309069e-5},  {8, 20, smoother_b, 0.1800564401355e-5},
    {9, 20, smoother_b, 0.5706732285740e-6},
};
static const double tolerance = 1e-8;

/* u: the solution, on coarser levels the correction; v: the right-hand side, there the residual. */
typedef struct {
    Grid u, v;
    double owed; /* extra work not done yet, in planes */
} Level;

typedef struct {
    World world;
    Common common;
    Arena arena;
    size_t class;
    double owed; /* messages of extra work not sent yet, in iterations */
    Cut cut;
    Crew crew;
    int finest, gathered; /* gathered: the finest level that is whole on every rank */
    Level level[MOST_LEVELS];
    Grid next;     /* u of the finest level is written here, then the two change places */
    Grid part;     /* own part of level[gathered].v */
    Grid u_view;   /* level[gathered].u as this rank's part sees it */
    double *parts; /* of all ranks */
    double comm;   /* seconds in MPI calls since it was last set to 0 */
} Mg;

static double points(const Mg *s) {
    return ldexp(1, 3 * classes[s->class].levels);
}

/* Return an even number of planes that takes this share of the time of all planes. The remainder is kept for
   the next call. */
static long planes_of(Level *level, double share) {
    if (share >= 1)
        return level->u.nz;
    level->owed += share * ((double)level->u.nz + pass_overlap);
    long planes = 2 * (long)((level->owed - pass_overlap) / 2);
    if (planes <= 0)
        return 0;
    if (planes > level->u.nz)
        planes = level->u.nz;
    level->owed -= (double)planes + pass_overlap;
    return planes;
}

static void exchange(Mg *s, const Grid *g, int level, bool talk) {
    if (talk && level > s->gathered)
        mg_grid_exchange(g, &s->cut, &s->comm);
}

/* Return the grid to which this rank writes its part of a coarser residual. share_coarse() then completes it,
   by its halo or by the parts of all ranks. */
static const Grid *coarse_target(const Mg *s, int level) {
    return level == s->gathered ? &s->part : &s->level[level].v;
}

static void share_coarse(Mg *s, int level, bool talk) {
    if (level == s->gathered && talk)
        mg_grid_gather(&s->part, s->parts, &s->level[level].v, &s->cut, &s->comm);
    exchange(s, &s->level[level].v, level, talk);
}

/* Do one V-cycle: `next` becomes u + M (v - A u), with M as defined. share: part of the planes of every
   level, 1 for all; talk: whether messages are sent. u is not changed, and a full cycle reads nothing that an
   earlier cycle has left, so planted extra work may run at any time. */
static void cycle(Mg *s, double share, bool talk) {
    const double *smoother = classes[s->class].smoother;
    Level *level = s->level;
    long planes[MOST_LEVELS];
    for (int k = 0; k <= s->finest; k++)
        planes[k] = planes_of(&level[k], share);
    pass_residual(&s->crew, coarse_target(s, s->finest - 1), &level[s->finest].v, &level[s->finest].u,
                  planes[s->finest]);
    share_coarse(s, s->finest - 1, talk);
    for (int k = s->finest - 1; k > 0; k--) {
        pass_restrict(&s->crew, coarse_target(s, k - 1), &level[k].v, planes[k]);
        share_coarse(s, k - 1, talk);
    }
    pass_smooth(&s->crew, &level[0].u, &level[0].v, smoother);
    for (int k = 1; k <= s->finest; k++) {
        const Grid *out = k == s->finest ? &s->next : &level[k].u, *u = k == s->finest ? &level[k].u : NULL;
        const Grid *z = k - 1 == s->gathered ? &s->u_view : &level[k - 1].u;
        pass_correct(&s->crew, out, u, z, &level[k].v, smoother, planes[k]);
        exchange(s, out, k, talk);
    }
}

static void iterate(Mg *s) {
    cycle(s, 1, true);
    double *data = s->next.data;
    s->next.data = s->level[s->finest].u.data;
    s->level[s->finest].u.data = data;
}

/* Return the root mean square of v - A u. */
static double norm(Mg *s) {
    double sum = pass_norm(&s->crew, &s->level[s->finest].v, &s->level[s->finest].u);
    if (s->world.size > 1)
        MPI_TIMED(s->comm, MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return sqrt(sum / points(s));
}

static double work_of(const Mg *s, double iterations) {
    return 58 * iterations * points(s);
}

static void start_over(Mg *s) {
    memset(s->level[s->finest].u.data, 0, mg_grid_bytes(&s->level[s->finest].u));
}

/* Return the finest level that is gathered. A level is divided if every rank has at least two planes and two
   rows of it, as the halo requires. */
static int finest_gathered(const Mg *s) {
    for (int k = s->finest; s->world.size > 1 && k >= 0; k--) {
        long n = 2L << k;
        if (n <= SHARED_BELOW || n / s->cut.planes < 2 || n / s->cut.rows < 2)
            return k;
    }
    return -1;
}

static void plan_grids(Mg *s) {
    for (int k = 0; k <= s->finest; k++) {
        const Cut *cut = k > s->gathered ? &s->cut : NULL;
        s->level[k].u = mg_grid_plan(2L << k, cut, 2);
        s->level[k].v = mg_grid_plan(2L << k, cut, 1);
    }
    s->next = mg_grid_plan(2L << s->finest, &s->cut, 2);
    if (s->gathered >= 0)
        s->part = mg_grid_plan(2L << s->gathered, &s->cut, 0);
}

/* Return the bytes of the levels below the finest. */
static size_t coarse_need(const Mg *s) {
    size_t need = 0;
    for (int k = 0; k < s->finest; k++)
        need += mg_grid_need(&s->level[k].u) + mg_grid_need(&s->level[k].v);
    if (s->gathered >= 0)
        need += mg_grid_need(&s->part) + mg_grid_bytes(&s->level[s->gathered].v);
    return need;
}

static void put_coarse(Mg *s, char *memory) {
    for (int k = 0; k < s->finest; k++) {
        mg_grid_put(&s->level[k].u, &memory);
        mg_grid_put(&s->level[k].v, &memory);
    }
    if (s->gathered >= 0) {
        mg_grid_put(&s->part, &memory);
        s->parts = (double *)memory;
        s->u_view = mg_grid_view(&s->level[s->gathered].u, &s->part, &s->cut);
    }
}

/* Take the memory. The coarse levels are one piece, since each alone would begin at a page of 2 MiB. */
static void take_memory(Mg *s) {
    Level *finest = &s->level[s->finest];
    size_t solution = arena_need(mg_grid_bytes(&finest->u)), given = arena_need(mg_grid_bytes(&finest->v));
    size_t crew = crew_need(finest->u.nx, s->common.threads);
    s->arena = arena_make(2 * solution + given + arena_need(coarse_need(s)) + crew, s->common.pages);
    mg_grid_take(&finest->u, &s->arena);
    mg_grid_take(&finest->v, &s->arena);
    mg_grid_take(&s->next, &s->arena);
    put_coarse(s, arena_take(&s->arena, coarse_need(s)));
    s->crew = crew_make(&s->arena, finest->u.nx, s->common.threads);
    arena_touch(&s->arena);
}

static void *prepare(Spec *spec, const World *world) {
    Mg *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", class_names, sizeof classes / sizeof *classes, 0);
    if (!power_of_two(world->size))
        fail("mg: runs on 1, 2, 4, 8, ... ranks, not on %d", world->size);
    s->finest = classes[s->class].levels - 1;
    s->cut = cut_make(world);
    s->gathered = finest_gathered(s);
    if (s->gathered == s->finest)
        fail("mg: %d ranks are too many for class %s", world->size, class_names[s->class]);
    plan_grids(s);
    take_memory(s);
    charges_place(&s->level[s->finest].v, &s->cut, s->common.corrupt);
    mg_grid_exchange(&s->level[s->finest].v, &s->cut, &s->comm);
    return s;
}

/* Run a slice. A unit of work is one V-cycle. */
static void slice(void *state, long units, Slice *out) {
    Mg *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->comm = 0;
    double start = now();
    for (long i = 0; i < units; i++)
        iterate(s);
    double extra = s->common.extra * (double)units;
    for (; extra >= 1; extra--)
        cycle(s, 1, true);
    if (extra > 0)
        cycle(s, extra, take_whole(&s->owed, extra) > 0);
    double seconds = now() - start;
    one_rate(out, seconds, s->comm, work_of(s, (double)units));
}

static void verify(void *state, Verified *v) {
    Mg *s = state;
    double expected = classes[s->class].norm;
    start_over(s);
    iterate(s); /* not timed, as published */
    start_over(s);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (int i = 0; i < classes[s->class].iterations; i++)
        iterate(s);
    double found = norm(s);
    v->seconds = now() - start;
    v->work = work_of(s, classes[s->class].iterations);
    v->ok = fabs((found - expected) / expected) <= tolerance;
    text_add(&v->expected, "\"class\":\"%s\",\"norm\":%.17g,\"relative_tolerance\":%g", class_names[s->class],
             expected, tolerance);
    text_add(&v->found, "\"norm\":");
    json_number(&v->found, found);
}

static void release(void *state) {
    Mg *s = state;
    for (int k = 0; k <= s->finest; k++) {
        mg_grid_free(&s->level[k].u);
        mg_grid_free(&s->level[k].v);
    }
    mg_grid_free(&s->next);
    arena_free(&s->arena);
    free(s);
}

static const Kernel mg_kernel = {"mg", prepare, slice, verify, release};
LISTED(mg_kernel)
