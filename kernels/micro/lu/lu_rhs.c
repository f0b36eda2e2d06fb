/* The residual: central differences of the fluxes, second differences of the viscous terms, and the second
   and fourth differences that damp (RNR-94-007, section 3), less the forcing.

   All but the fluxes' products are differences of what depends on one point only, so a neighbour's share is a
   function of that point, and the six shares and the centre's make up the residual.

   Next to a wall the definition's fourth difference leaves out the points behind the wall and, two points
   off, the wall itself. Here the ghosts behind a wall and the wall take part with the fields they always
   have: the forcing is this residual of the exact solution, so whatever is constant cancels. What remains is
   that a point next to a wall counts itself 5 times instead of 6. */
#include "lanes.h"
#include "lu.h"

enum { VELOCITY, PRESSURE = 3, HEAT }; /* fields of the scratch */

typedef struct {
    double near[3], far, centre, wall; /* of the damping differences */
    double flux, viscous, heat;
} Weights;

static Weights weights(const Flow *f) {
    double over_h = f->grid.n - 1, second = over_h * over_h, damping[3] = {cfd_dx, cfd_dy, cfd_dz};
    Weights w = {.far = -cfd_dssp,
                 .wall = cfd_dssp,
                 .flux = over_h / 2,
                 .viscous = second * cfd_c3 * cfd_c4,
                 .heat = cfd_c1 * cfd_c5};
    for (int n = 0; n < 3; n++) {
        w.near[n] = second * damping[n] + 4 * cfd_dssp;
        w.centre -= 2 * second * damping[n] + 6 * cfd_dssp;
    }
    return w;
}

/* Of every point of plane k that a residual may need: velocity, pressure, and the part of the energy's
   viscous term that is the same in all directions. */
static void fill_scratch(const Flow *f, double heat, int k, Span diagonals) {
    const Grid *g = &f->grid;
    const double *u = layout_field(&g->whole, f->u, k, 0);
    double *to = layout_field(&g->whole, f->scratch, k % SCRATCH, 0);
    long plane = g->whole.plane;
    for (int d = diagonals.lo - 1; d <= diagonals.hi + 1; d++) {
        Span span = grid_span(g, d, 1);
        /* hot loop: vector types */
        for (int j = lanes_floor(span.lo); j <= span.hi; j += LANES) {
            long at = layout_line(&g->whole, d) + j;
            Lanes specific = 1 / lanes_at(u + at), energy = lanes_at(u + 4 * plane + at), squares = {0};
            for (int n = 0; n < 3; n++) {
                Lanes v = lanes_at(u + (1 + n) * plane + at) * specific;
                lanes_put(to + (VELOCITY + n) * plane + at, v);
                squares += v * v;
            }
            Lanes pressure = cfd_c2 * (energy - 0.5 * squares * lanes_at(u + at));
            lanes_put(to + PRESSURE * plane + at, pressure);
            lanes_put(to + HEAT * plane + at, 0.5 * (1 - heat) * squares + heat * energy * specific);
        }
    }
}

/* Add the contribution of a neighbour in direction n. side: 1 for the next point, -1 for the previous one; u,
   s: its fields and scratch values. */
INLINE void add_neighbour(Lanes r[CFD_FIELDS], const Weights *w, int n, int side, const double *u,
                          const double *s, long plane) {
    Lanes normal = lanes_at(s + (VELOCITY + n) * plane), flow = -side * w->flux * normal;
    Lanes carried = w->near[n] + flow, pressure = lanes_at(s + PRESSURE * plane);
    r[0] += w->near[n] * lanes_at(u) - side * w->flux * lanes_at(u + (1 + n) * plane);
    for (int m = 0; m < 3; m++) {
        Lanes v = m == n ? normal * (4.0 / 3) : lanes_at(s + (VELOCITY + m) * plane);
        r[1 + m] += carried * lanes_at(u + (1 + m) * plane) + w->viscous * v;
    }
    r[1 + n] -= side * w->flux * pressure;
    r[4] += carried * lanes_at(u + 4 * plane) + flow * pressure +
            w->viscous * (lanes_at(s + HEAT * plane) + normal * normal * (1.0 / 6));
}

INLINE void add_centre(Lanes r[CFD_FIELDS], const Weights *w, Lanes damping, const double *u, const double *s,
                       long plane) {
    Lanes squares = {0};
    for (int m = 0; m < CFD_FIELDS; m++)
        r[m] += damping * lanes_at(u + m * plane);
    for (int n = 0; n < 3; n++) {
        Lanes v = lanes_at(s + (VELOCITY + n) * plane);
        r[1 + n] -= w->viscous * (2 * (2 + 4.0 / 3)) * v;
        squares += v * v;
    }
    r[4] -= w->viscous * (6 * lanes_at(s + HEAT * plane) + squares * (1.0 / 3));
}

static void residual_of_plane(const Flow *f, const Weights *w, int k, Span diagonals) {
    const Grid *g = &f->grid;
    int last = g->n - 1, lower = k > 1 ? k - 2 : 0, upper = k < last - 1 ? k + 2 : last;
    const Layout *whole = &g->whole;
    const double *u = layout_field(whole, f->u, k, 0), *s = layout_field(whole, f->scratch, k % SCRATCH, 0);
    const double *before = layout_field(whole, f->scratch, (k - 1) % SCRATCH, 0);
    const double *after = layout_field(whole, f->scratch, (k + 1) % SCRATCH, 0);
    const double *forcing = layout_field(&g->inner, f->forcing, k - 1, 0);
    double *residual = layout_field(&g->inner, f->residual, k - 1, 0);
    const long plane = whole->plane, level = CFD_FIELDS * plane, inner_plane = g->inner.plane;
    const long two_below = (lower - k) * level, two_above = (upper - k) * level;
    double centre = w->centre + w->wall * ((k == 1) + (k == last - 1));
    for (int d = diagonals.lo; d <= diagonals.hi; d++) {
        Span span = grid_span(g, d, 0);
        const long *line = whole->lines + d - whole->first, inner_line = layout_line(&g->inner, d);
        long west = line[-1] - line[0], east = line[1] - line[0], north = west - 1, south = east + 1;
        long west2 = line[-2] - line[0], east2 = line[2] - line[0], north2 = west2 - 2, south2 = east2 + 2;
        /* hot loop: vector types */
        for (int j = lanes_floor(span.lo); j <= span.hi; j += LANES) {
            long at = line[0] + j, inner_at = inner_line + j;
            Lanes r[CFD_FIELDS];
            for (int m = 0; m < CFD_FIELDS; m++) {
                const double *of = u + m * plane + at;
                r[m] =
                    w->far * (lanes_at(of + west2) + lanes_at(of + east2) + lanes_at(of + north2) +
                              lanes_at(of + south2) + lanes_at(of + two_below) + lanes_at(of + two_above)) -
                    lanes_at(forcing + m * inner_plane + inner_at);
            }
            add_neighbour(r, w, 0, -1, u + at + west, s + at + west, plane);
            add_neighbour(r, w, 0, 1, u + at + east, s + at + east, plane);
            add_neighbour(r, w, 1, -1, u + at + north, s + at + north, plane);
            add_neighbour(r, w, 1, 1, u + at + south, s + at + south, plane);
            add_neighbour(r, w, 2, -1, u + at - level, before + at, plane);
            add_neighbour(r, w, 2, 1, u + at + level, after + at, plane);
            add_centre(r, w, centre + w->wall * lanes_at(f->walls + inner_at), u + at, s + at, plane);
            for (int m = 0; m < CFD_FIELDS; m++)
                lanes_put(residual + m * inner_plane + inner_at, r[m]);
        }
    }
}

/* Return the diagonals from `first` on that can be processed together, such that their values in planes k - 2
   to k + 2 stay in the cache. */
static Span diagonals_from(const Grid *g, int first) {
    enum { NUMBERS = 1600 }; /* measured; 8 planes of 5 fields, of u and of the scratch, are 0.5 MB */
    Span span = {first, first};
    while (span.hi < g->ihi + g->jhi &&
           layout_line(&g->whole, span.hi + 2) - layout_line(&g->whole, first) <= NUMBERS)
        span.hi++;
    return span;
}

void compute_residual(Flow *flow, int planes) {
    const Grid *g = &flow->grid;
    Weights w = weights(flow);
    for (Span part = {.hi = g->ilo + g->jlo - 1}; part.hi < g->ihi + g->jhi;) {
        part = diagonals_from(g, part.hi + 1);
        fill_scratch(flow, w.heat, 0, part);
        fill_scratch(flow, w.heat, 1, part);
        for (int k = 1; k <= planes; k++) {
            fill_scratch(flow, w.heat, k + 1, part);
            residual_of_plane(flow, &w, k, part);
        }
    }
}
