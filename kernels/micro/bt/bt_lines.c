#include "bt_lines.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { DENSITY, ACROSS1, ACROSS2, ALONG, ENERGY };

LineFactors line_factors(int n, double dt, double spread) {
    double cells = n - 1, second = dt * cells * cells, viscosity = cfd_c3 * cfd_c4 * second;
    return (LineFactors){.flux = dt * cells / 2,
                         .spread = spread * second,
                         .across = viscosity,
                         .along = viscosity * 4 / 3,
                         .heat = viscosity * cfd_c1 * cfd_c5 / cfd_c2};
}

/* density; velocities and energy per mass, which are the first column of M but for its 1; p/density. */
typedef struct {
    Lanes density, velocity[3], energy, theta;
} State;

INLINE State state_at(const Lines *lines, const double *u) {
    State s = {.density = lanes_at(u)};
    Lanes inverse = 1 / s.density, square = {0};
    for (int v = 0; v < 3; v++) {
        s.velocity[v] = lanes_at(u + lines->field[ACROSS1 + v]) * inverse;
        square += s.velocity[v] * s.velocity[v];
    }
    s.energy = lanes_at(u + lines->field[ENERGY]) * inverse;
    s.theta = cfd_c2 * (s.energy - 0.5 * square);
    return s;
}

/* P and Q are L S, where L is the unit triangle
       1; v1 1; v2 0 1; v 0 0 1; e v1 v2 v 1
   and S has these entries in rows and columns density, v1, v2, v, p/density:
       mass 0 0 flow 0; 0 across 0 0 0; 0 0 across 0 0; push 0 0 along flow; 0 0 0 press heat */
typedef struct {
    Lanes mass, flow, across, along, push, press, heat;
} Coupling;

/* sign: 1 for P, -1 for Q. */
INLINE Coupling coupling(const State *s, const LineFactors *f, double sign) {
    Coupling c = {.mass = f->flux * s->velocity[2] + sign * f->spread, .flow = f->flux * s->density};
    Lanes moved = s->density * c.mass;
    c.across = moved + sign * f->across;
    c.along = moved + sign * f->along;
    c.push = f->flux * s->theta;
    c.press = c.flow * s->theta;
    c.heat = moved / cfd_c2 + sign * f->heat;
    return c;
}

/* y = L S x */
INLINE void apply(const State *s, const Coupling *c, const Lanes x[CFD_FIELDS], Lanes y[CFD_FIELDS]) {
    Lanes across1 = c->across * x[ACROSS1], across2 = c->across * x[ACROSS2];
    Lanes along = c->push * x[DENSITY] + c->along * x[ALONG] + c->flow * x[ENERGY];
    y[DENSITY] = c->mass * x[DENSITY] + c->flow * x[ALONG];
    y[ACROSS1] = s->velocity[0] * y[DENSITY] + across1;
    y[ACROSS2] = s->velocity[1] * y[DENSITY] + across2;
    y[ALONG] = s->velocity[2] * y[DENSITY] + along;
    y[ENERGY] = s->energy * y[DENSITY] + s->velocity[0] * across1 + s->velocity[1] * across2 +
                s->velocity[2] * along + (c->press * x[ALONG] + c->heat * x[ENERGY]);
}

/* block += B = L times a diagonal */
INLINE void add_own(const State *s, const LineFactors *f, Lanes block[CFD_FIELDS][CFD_FIELDS]) {
    double mass = 1 + 2 * f->spread;
    Lanes across = mass * s->density + 2 * f->across, along = mass * s->density + 2 * f->along;
    block[DENSITY][DENSITY] += mass;
    for (int v = 0; v < 3; v++)
        block[ACROSS1 + v][DENSITY] += mass * s->velocity[v];
    block[ENERGY][DENSITY] += mass * s->energy;
    block[ACROSS1][ACROSS1] += across;
    block[ENERGY][ACROSS1] += across * s->velocity[0];
    block[ACROSS2][ACROSS2] += across;
    block[ENERGY][ACROSS2] += across * s->velocity[1];
    block[ALONG][ALONG] += along;
    block[ENERGY][ALONG] += along * s->velocity[2];
    block[ENERGY][ENERGY] += (mass / cfd_c2) * s->density + 2 * f->heat;
}

/* The columns of Q. */
INLINE void columns(const State *s, const Coupling *c, Lanes column[CFD_FIELDS][CFD_FIELDS]) {
    const Lanes zero = {0};
    const Lanes *v = s->velocity;
    column[DENSITY][DENSITY] = c->mass;
    column[DENSITY][ACROSS1] = c->mass * v[0];
    column[DENSITY][ACROSS2] = c->mass * v[1];
    column[DENSITY][ALONG] = c->mass * v[2] + c->push;
    column[DENSITY][ENERGY] = c->mass * s->energy + c->push * v[2];
    for (int a = ACROSS1; a <= ACROSS2; a++) {
        for (int row = 0; row < CFD_FIELDS; row++)
            column[a][row] = zero;
        column[a][a] = c->across;
        column[a][ENERGY] = c->across * v[a - ACROSS1];
    }
    column[ALONG][DENSITY] = c->flow;
    column[ALONG][ACROSS1] = c->flow * v[0];
    column[ALONG][ACROSS2] = c->flow * v[1];
    column[ALONG][ALONG] = c->flow * v[2] + c->along;
    column[ALONG][ENERGY] = c->flow * s->energy + c->along * v[2] + c->press;
    column[ENERGY][DENSITY] = column[ENERGY][ACROSS1] = column[ENERGY][ACROSS2] = zero;
    column[ENERGY][ALONG] = c->flow;
    column[ENERGY][ENERGY] = c->flow * v[2] + c->heat;
}

/* Triangular factors in place, the diagonal inverted. B outweighs its neighbours: no pivot is looked for. */
INLINE void factorise(Lanes block[CFD_FIELDS][CFD_FIELDS]) {
#pragma GCC unroll 5
    for (int p = 0; p < CFD_FIELDS; p++) {
        block[p][p] = 1 / block[p][p];
#pragma GCC unroll 5
        for (int row = p + 1; row < CFD_FIELDS; row++) {
            Lanes factor = block[row][p] *= block[p][p];
#pragma GCC unroll 5
            for (int c = p + 1; c < CFD_FIELDS; c++)
                block[row][c] -= factor * block[p][c];
        }
    }
}

/* x = block^-1 x, where x is 0 before `first`. */
INLINE void solve(Lanes block[CFD_FIELDS][CFD_FIELDS], int first, Lanes x[CFD_FIELDS]) {
#pragma GCC unroll 5
    for (int c = first; c < CFD_FIELDS; c++)
#pragma GCC unroll 5
        for (int row = c + 1; row < CFD_FIELDS; row++)
            x[row] -= block[row][c] * x[c];
#pragma GCC unroll 5
    for (int c = CFD_FIELDS - 1; c >= 0; c--) {
        x[c] *= block[c][c];
#pragma GCC unroll 5
        for (int row = 0; row < c; row++)
            x[row] -= block[row][c] * x[c];
    }
}

INLINE void eliminate(const Lines *lines, const LineFactors *f, const double *rhs, const State *before,
                      const State *here, const State *behind, const Kept *earlier, Kept *kept) {
    Coupling p = coupling(before, f, 1);
    Lanes block[CFD_FIELDS][CFD_FIELDS], change[CFD_FIELDS];
#pragma GCC unroll 5
    for (int c = 0; c < CFD_FIELDS; c++) {
        Lanes y[CFD_FIELDS];
        apply(before, &p, earlier->column[c], y);
#pragma GCC unroll 5
        for (int row = 0; row < CFD_FIELDS; row++)
            block[row][c] = y[row];
    }
    apply(before, &p, earlier->change, change);
    add_own(here, f, block);
    factorise(block);
    for (int m = 0; m < CFD_FIELDS; m++)
        change[m] += lanes_at(rhs + lines->field[m]);
    solve(block, 0, change);
    memcpy(kept->change, change, sizeof change);
    Coupling q = coupling(behind, f, -1);
    Lanes column[CFD_FIELDS][CFD_FIELDS];
    columns(behind, &q, column);
    static const int first[CFD_FIELDS] = {DENSITY, ACROSS1, ACROSS2, DENSITY, ALONG};
#pragma GCC unroll 5
    for (int c = 0; c < CFD_FIELDS; c++) {
        solve(block, first[c], column[c]);
#pragma GCC unroll 5
        for (int row = 0; row < CFD_FIELDS; row++)
            kept->column[c][row] = column[c][row];
    }
}

void lines_eliminate(const Lines *lines, const LineFactors *factors, const Kept *before, Kept *kept) {
    static const Kept wall[BUNDLE];
    State state[3][BUNDLE];
    const Kept *earlier = before ? before : wall;
    for (int g = 0; g < lines->groups; g++)
        for (int i = 0; i < 2; i++)
            state[i][g] = state_at(lines, lines->u + g * lines->group + (i - 1) * lines->step);
    for (int i = 0; i < lines->points; i++) {
        const State *last = state[i % 3], *here = state[(i + 1) % 3];
        State *next = state[(i + 2) % 3];
        /* hot loop: vector types */
        for (int g = 0; g < lines->groups; g++) {
            long at = g * lines->group + i * lines->step;
            next[g] = state_at(lines, lines->u + at + lines->step);
            eliminate(lines, factors, lines->rhs + at, &last[g], &here[g], &next[g], &earlier[g], &kept[g]);
        }
        earlier = kept;
        kept += lines->groups;
    }
}

/* W of a point from that of the next. */
INLINE void substitute(const Kept *kept, Solved *solved) {
    Lanes w[CFD_FIELDS];
    for (int row = 0; row < CFD_FIELDS; row++)
        w[row] = kept->change[row];
#pragma GCC unroll 5
    for (int c = 0; c < CFD_FIELDS; c++)
        for (int row = 0; row < CFD_FIELDS; row++)
            w[row] -= kept->column[c][row] * solved->w[c];
    for (int row = 0; row < CFD_FIELDS; row++)
        solved->w[row] = w[row];
}

/* M W */
INLINE void conserved(const Lines *lines, const double *u, const Solved *solved, Lanes change[CFD_FIELDS]) {
    const Lanes *w = solved->w;
    Lanes density = lanes_at(u), grown = w[DENSITY] / density;
    change[DENSITY] = w[DENSITY];
    change[ENERGY] = lanes_at(u + lines->field[ENERGY]) * grown + w[ENERGY] * density / cfd_c2;
    for (int m = ACROSS1; m <= ALONG; m++) {
        Lanes momentum = lanes_at(u + lines->field[m]);
        change[m] = momentum * grown + density * w[m];
        change[ENERGY] += momentum * w[m];
    }
}

void lines_substitute(const Lines *lines, const Kept *kept, const Solved *behind, Outcome outcome,
                      Solved *first) {
    Solved solved[BUNDLE] = {0};
    if (behind)
        memcpy(solved, behind, (size_t)lines->groups * sizeof *solved);
    for (int i = lines->points - 1; i >= 0; i--)
        /* hot loop: vector types */
        for (int g = 0; g < lines->groups; g++) {
            long at = g * lines->group + i * lines->step;
            double *u = lines->u + at, *rhs = lines->rhs + at;
            Lanes change[CFD_FIELDS];
            substitute(&kept[i * lines->groups + g], &solved[g]);
            conserved(lines, u, &solved[g], change);
            for (int m = 0; m < CFD_FIELDS; m++)
                if (outcome == ADD_TO_U)
                    lanes_put(u + lines->field[m], lanes_at(u + lines->field[m]) + change[m]);
                else
                    lanes_put(rhs + lines->field[m], change[m]);
        }
    if (first)
        memcpy(first, solved, (size_t)lines->groups * sizeof *solved);
}
