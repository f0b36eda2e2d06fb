/* The two sweeps of an iteration: (D + L) v = dt residual, then (D + U) correction = D v, where L and U hold
   the Jacobians of the neighbours before and after a point and D the point's own block.

   No Jacobian is ever stored. What a point's v does to its three neighbours is computed where v is known, and
   handed on to them: along i and j through `edge`, to the next plane and from other ranks through `incoming`.
   With e = change of momentum less velocity times change of density and f = change of energy less specific
   energy times change of density, D is almost diagonal and the products with L and U are short. */
#include <string.h>

#include "lanes.h"
#include "lu.h"

typedef struct {
    double step, base, inverse_base; /* dt; D without viscosity */
    double momentum, heat, work;     /* D: viscous terms; work: of the velocities on the energy */
    double damping[3], viscous, flux, conductivity; /* L or U, times the relaxation factor */
} Factors;

static Factors factors(const Flow *f, bool forward) {
    double over_h = f->grid.n - 1, second = f->dt * over_h * over_h, viscous = second * cfd_c3 * cfd_c4;
    double conductivity = cfd_c1 * cfd_c5, passed = lu_relaxation * second;
    Factors c = {.step = f->dt,
                 .base = 1 + 2 * second * (cfd_dx + cfd_dy + cfd_dz),
                 .momentum = 2 * viscous * (2 + 4.0 / 3),
                 .heat = 2 * viscous * 3 * conductivity,
                 .work = 2 * viscous * (3 * (1 - conductivity) + 1.0 / 3),
                 .damping = {passed * cfd_dx, passed * cfd_dy, passed * cfd_dz},
                 .viscous = lu_relaxation * viscous,
                 .flux = (forward ? 1 : -1) * lu_relaxation * f->dt * over_h / 2,
                 .conductivity = conductivity};
    c.inverse_base = 1 / c.base;
    return c;
}

typedef struct {
    Lanes density, specific, velocity[3], energy; /* specific: volume; energy: per mass */
} Point;

typedef struct {
    Lanes density, e[3], f;
} Change;

INLINE Point point_at(const double *u, long plane) {
    Point p = {.density = lanes_at(u)};
    p.specific = 1 / p.density;
    for (int n = 0; n < 3; n++)
        p.velocity[n] = lanes_at(u + (1 + n) * plane) * p.specific;
    p.energy = lanes_at(u + 4 * plane) * p.specific;
    return p;
}

INLINE Change change_of(const Point *p, const Lanes v[CFD_FIELDS]) {
    Change c = {.density = v[0], .f = v[4] - p->energy * v[0]};
    for (int n = 0; n < 3; n++)
        c.e[n] = v[1 + n] - p->velocity[n] * v[0];
    return c;
}

INLINE void fields_of(const Point *p, const Change *c, Lanes v[CFD_FIELDS]) {
    v[0] = c->density;
    for (int n = 0; n < 3; n++)
        v[1 + n] = c->e[n] + p->velocity[n] * c->density;
    v[4] = c->f + p->energy * c->density;
}

INLINE Lanes along_velocity(const Point *p, const Change *c) {
    return p->velocity[0] * c->e[0] + p->velocity[1] * c->e[1] + p->velocity[2] * c->e[2];
}

/* Return the change whose product with D is r. */
INLINE Change solve(const Factors *c, const Point *p, const Lanes r[CFD_FIELDS]) {
    Change of = change_of(p, r);
    of.density *= c->inverse_base;
    Lanes momentum = p->density / (c->base * p->density + c->momentum);
    for (int n = 0; n < 3; n++)
        of.e[n] *= momentum;
    Lanes work = c->work * p->specific * along_velocity(p, &of);
    of.f = (of.f - work) * p->density / (c->base * p->density + c->heat);
    return of;
}

/* The values that are the same for all directions. */
typedef struct {
    Lanes v[CFD_FIELDS], viscous[3], heat, pressure, enthalpy;
} Passed;

INLINE Passed passed_on(const Factors *c, const Point *p, const Change *of) {
    Passed to;
    fields_of(p, of, to.v);
    Lanes viscous = c->viscous * p->specific, along = along_velocity(p, of);
    Lanes half_square = 0.5 * (p->velocity[0] * p->velocity[0] + p->velocity[1] * p->velocity[1] +
                               p->velocity[2] * p->velocity[2]);
    for (int n = 0; n < 3; n++)
        to.viscous[n] = viscous * of->e[n];
    to.heat = viscous * ((1 - c->conductivity) * along + c->conductivity * of->f);
    to.pressure = cfd_c2 * (of->f - along + (p->energy - half_square) * of->density);
    to.enthalpy = cfd_c1 * p->energy - cfd_c2 * half_square;
    return to;
}

/* Pass the change of a point on to its neighbour in direction n. */
INLINE void pass(const Factors *c, const Point *p, const Change *of, const Passed *to, int n,
                 Lanes out[CFD_FIELDS]) {
    Lanes mass = c->flux * to->v[1 + n], flow = c->flux * p->velocity[n];
    Lanes stretch = to->viscous[n] * (1.0 / 3);
    out[0] = c->damping[n] * to->v[0] + mass;
    for (int m = 0; m < 3; m++)
        out[1 + m] = c->damping[n] * to->v[1 + m] + to->viscous[m] + flow * of->e[m] + p->velocity[m] * mass;
    out[1 + n] += stretch + c->flux * to->pressure;
    out[4] = c->damping[n] * to->v[4] + to->heat + p->velocity[n] * stretch +
             flow * (to->v[4] + to->pressure) + to->enthalpy * (c->flux * of->e[n]);
}

/* By field, what a diagonal hands on in i and j; index j. */
typedef struct {
    double *i, *j;
    long width;
} Edge;

static long edge_width(const Grid *g) {
    return lanes_floor(g->nj - 1) + 3 * LANES;
}

size_t edge_need(const Grid *g) {
    return (size_t)(4 * CFD_FIELDS * edge_width(g)) * sizeof(double);
}

static Edge edge_of(const Flow *f, int which) {
    long width = edge_width(&f->grid), one = CFD_FIELDS * width;
    double *begin = f->edge + 2 * (which & 1) * one;
    return (Edge){.i = begin + LANES, .j = begin + one + LANES, .width = width};
}

typedef struct {
    double *u, *residual, *incoming;
    long whole, inner; /* numbers from field to field: of u; of the others */
} Place;

INLINE void sweep_lanes(const Factors *c, Place at, LaneMask mask, bool forward, double relaxation,
                        const double *from_i, const double *from_j, double *to_i, double *to_j, long width) {
    Point p = point_at(at.u, at.whole);
    Lanes v[CFD_FIELDS], out[CFD_FIELDS];
    for (int m = 0; m < CFD_FIELDS; m++)
        v[m] = lanes_at(at.incoming + m * at.inner) + lanes_at(from_i + m * width) +
               lanes_at(from_j + m * width);
    if (forward)
        for (int m = 0; m < CFD_FIELDS; m++)
            v[m] += c->step * lanes_at(at.residual + m * at.inner);
    Change of = solve(c, &p, v);
    fields_of(&p, &of, v);
    for (int m = 0; m < CFD_FIELDS; m++) {
        if (!forward)
            v[m] += lanes_at(at.residual + m * at.inner);
        v[m] = lanes_only(v[m], mask);
        if (forward)
            lanes_put(at.residual + m * at.inner, v[m]);
        else
            lanes_put(at.u + m * at.whole, lanes_at(at.u + m * at.whole) + relaxation * v[m]);
    }
    of = change_of(&p, v);
    Passed on = passed_on(c, &p, &of);
    pass(c, &p, &of, &on, 0, out);
    for (int m = 0; m < CFD_FIELDS; m++)
        lanes_put(to_i + m * width, out[m]);
    pass(c, &p, &of, &on, 1, out);
    for (int m = 0; m < CFD_FIELDS; m++)
        lanes_put(to_j + m * width, out[m]);
    pass(c, &p, &of, &on, 2, out);
    for (int m = 0; m < CFD_FIELDS; m++)
        lanes_put(at.incoming + m * at.inner, out[m]);
}

INLINE void sweep_diagonal(const Flow *f, const Factors *c, int k, int d, Span span, bool forward,
                           double relaxation) {
    const Grid *g = &f->grid;
    Edge from = edge_of(f, d + 1), to = edge_of(f, d);
    double *u = layout_field(&g->whole, f->u, k, 0) + layout_line(&g->whole, d);
    double *residual = layout_field(&g->inner, f->residual, k - 1, 0) + layout_line(&g->inner, d);
    double *incoming = f->incoming + layout_line(&g->inner, d);
    /* hot loop: vector types */
    for (int j = lanes_floor(span.lo); j <= span.hi; j += LANES) {
        Place place = {.u = u + j,
                       .residual = residual + j,
                       .incoming = incoming + j,
                       .whole = g->whole.plane,
                       .inner = g->inner.plane};
        sweep_lanes(c, place, lanes_between(span.lo - j, span.hi - j), forward, relaxation, from.i + j,
                    from.j + (forward ? j - 1 : j + 1), to.i + j, to.j + j, to.width);
    }
    /* The next diagonal may begin one run of lanes further on: nothing comes from behind a wall. */
    int beyond = forward ? lanes_floor(span.hi) + LANES : lanes_floor(span.lo) - LANES;
    for (int m = 0; m < CFD_FIELDS; m++)
        lanes_put(to.i + m * to.width + beyond, (Lanes){0});
}

/* Copy the data that leave the block to the outbox. */
static void hand_over(const Flow *f, Outbox *out, int d, Span span, bool forward) {
    const Grid *g = &f->grid;
    Edge edge = edge_of(f, d);
    int j = forward ? g->jhi : g->jlo, i = forward ? g->ihi : g->ilo;
    bool over_i = (forward ? g->east : g->west) != MPI_PROC_NULL && d - i >= span.lo && d - i <= span.hi;
    bool over_j = (forward ? g->south : g->north) != MPI_PROC_NULL && j >= span.lo && j <= span.hi;
    for (int m = 0; m < CFD_FIELDS; m++) {
        if (over_i)
            out->along_j[m * g->nj + d - i] = edge.i[m * edge.width + d - i];
        if (over_j)
            out->along_i[m * g->ni + d - j] = edge.j[m * edge.width + j];
    }
}

INLINE void sweep_plane(Flow *f, const Factors *c, int k, bool forward, double relaxation) {
    const Grid *g = &f->grid;
    int first = g->ilo + g->jlo, last = g->ihi + g->jhi;
    wave_receive(&f->exchange, g, forward, f->incoming);
    Outbox *out = wave_outbox(&f->exchange, k);
    memset(f->edge, 0, edge_need(g));
    for (int turn = 0; turn <= last - first; turn++) {
        int d = forward ? first + turn : last - turn;
        Span span = grid_span(g, d, 0);
        sweep_diagonal(f, c, k, d, span, forward, relaxation);
        hand_over(f, out, d, span, forward);
    }
    wave_send(&f->exchange, g, forward, out);
}

void lower_sweep(Flow *flow, int planes) {
    Factors c = factors(flow, true);
    memset(flow->incoming, 0, CFD_FIELDS * (size_t)flow->grid.inner.plane * sizeof *flow->incoming);
    for (int k = 1; k <= planes; k++)
        sweep_plane(flow, &c, k, true, 0);
    wave_end(&flow->exchange);
}

void upper_sweep(Flow *flow, int planes, double relaxation) {
    Factors c = factors(flow, false);
    memset(flow->incoming, 0, CFD_FIELDS * (size_t)flow->grid.inner.plane * sizeof *flow->incoming);
    for (int k = planes; k >= 1; k--)
        sweep_plane(flow, &c, k, false, relaxation);
    wave_end(&flow->exchange);
}
