/* The discrete right-hand side (RNR-94-007, section 3): along each axis, central differences of the fluxes,
   second differences of what viscosity and heat conduction act on and of all fields, and fourth differences
   of all fields, one-sided next to the walls. */
#include "bt_rhs.h"

enum { TAPS = 2 * GHOSTS + 1 };

/* Of a point: velocities, pressure, and energy per mass as far as it is the same for all axes. */
enum { VELOCITY = 0, PRESSURE = AXES, HEAT, DERIVED, RING = 3 };

RhsFactors rhs_factors(int n, double dt) {
    double cells = n - 1;
    return (RhsFactors){
        .flux = dt * cells / 2,
        .viscous = dt * cells * cells * cfd_c3 * cfd_c4,
        .spread = {dt * cells * cells * cfd_dx, dt * cells * cells * cfd_dy, dt * cells * cells * cfd_dz},
        .fourth = dt * cfd_dssp};
}

/* The linear part along one axis at an inner point: second and fourth differences of a field. */
static void taps_at(int n, int point, double spread, double fourth, double taps[TAPS]) {
    static const double second[TAPS] = {0, 1, -2, 1, 0};
    double difference[TAPS] = {1, -4, 6, -4, 1};
    if (point <= GHOSTS)
        difference[0] = 0;
    if (point >= n - 1 - GHOSTS)
        difference[TAPS - 1] = 0;
    if (point == 1) {
        difference[1] = 0;
        difference[2] = 5;
    }
    if (point == n - 2) {
        difference[3] = 0;
        difference[2] = 5;
    }
    for (int t = 0; t < TAPS; t++)
        taps[t] = spread * second[t] - fourth * difference[t];
}

static size_t weights_bytes(const Cell *cell) {
    return TAPS * LANES * (size_t)inner_groups(cell, X) * sizeof(double);
}

size_t rhs_weights_need(const Cells *cells) {
    size_t need = 0;
    for (int s = 0; s < cells->q; s++)
        need += arena_need(weights_bytes(&cells->cell[s]));
    return need;
}

/* Along x, lane by lane: the taps of each group of lanes. */
void rhs_weights(const Cells *cells, const RhsFactors *factors, Arena *arena) {
    for (int s = 0; s < cells->q; s++) {
        Cell *cell = &cells->cell[s];
        cell->weights = arena_take(arena, weights_bytes(cell));
        for (int at = 0; at < LANES * inner_groups(cell, X); at++) {
            double taps[TAPS];
            taps_at(cells->n, cell->first[X] + cell->begin[X] + at, factors->spread[X], factors->fourth,
                    taps);
            for (int t = 0; t < TAPS; t++)
                cell->weights[(at / LANES * TAPS + t) * LANES + at % LANES] = taps[t];
        }
    }
}

size_t rhs_derived_need(const Cells *cells) {
    return RING * DERIVED * (size_t)cells_largest_field(cells) * sizeof(double);
}

/* Plane k of `derived`, at point (0, 0). */
static double *derived_plane(const Cell *cell, double *derived, int k) {
    long origin = GHOSTS * cell->step[Y] + LANES - cell->begin[X];
    return derived + (k + RING) % RING * DERIVED * cell->field + origin;
}

static void derive_plane(const Cell *cell, double *derived, int k) {
    const long field = cell->field;
    double *to_plane = derived_plane(cell, derived, k);
    for (int j = cell->begin[Y] - 1; j <= cell->end[Y]; j++) {
        const double *u = cell->u + point_at(cell, 0, j, k);
        double *to = to_plane + j * cell->step[Y];
        /* hot loop: vector types */
        for (int i = cell->begin[X] - 1; i <= cell->end[X]; i += LANES) {
            Lanes per_density = 1 / lanes_at(u + i), energy = lanes_at(u + i + 4 * field), twice = {0};
            for (int axis = 0; axis < AXES; axis++) {
                Lanes momentum = lanes_at(u + i + (1 + axis) * field), velocity = momentum * per_density;
                lanes_put(to + i + (VELOCITY + axis) * field, velocity);
                twice += momentum * velocity;
            }
            lanes_put(to + i + PRESSURE * field, cfd_c2 * (energy - 0.5 * twice));
            lanes_put(to + i + HEAT * field,
                      per_density * (cfd_c1 * cfd_c5 * energy + 0.5 * (1 - cfd_c1 * cfd_c5) * twice));
        }
    }
}

/* Where the neighbours of a point lie before and behind it. */
typedef struct {
    const double *u[2], *derived[2];
} Pair;

static inline Pair pair_along(const double *u, const double *derived, long step) {
    return (Pair){.u = {u - step, u + step}, .derived = {derived - step, derived + step}};
}

/* What the two neighbours along an axis add: fluxes, and the outer part of the second differences. */
static inline __attribute__((always_inline)) void add_axis(Lanes change[CFD_FIELDS], Pair pair, long field,
                                                           int axis, const RhsFactors *factors) {
    Lanes normal[2], along[2], pressure[2], heat[2];
    for (int side = 0; side < 2; side++) {
        normal[side] = lanes_at(pair.derived[side] + (VELOCITY + axis) * field);
        along[side] = lanes_at(pair.u[side] + (1 + axis) * field);
        pressure[side] = lanes_at(pair.derived[side] + PRESSURE * field);
        heat[side] = lanes_at(pair.derived[side] + HEAT * field) + normal[side] * normal[side] / 6;
    }
    change[0] += factors->flux * (along[0] - along[1]);
    for (int m = 0; m < AXES; m++) {
        Lanes flux, velocities;
        if (m == axis) {
            flux = along[0] * normal[0] - along[1] * normal[1] + (pressure[0] - pressure[1]);
            velocities = (normal[0] + normal[1]) * (4.0 / 3);
        } else {
            flux = lanes_at(pair.u[0] + (1 + m) * field) * normal[0] -
                   lanes_at(pair.u[1] + (1 + m) * field) * normal[1];
            velocities = lanes_at(pair.derived[0] + (VELOCITY + m) * field) +
                         lanes_at(pair.derived[1] + (VELOCITY + m) * field);
        }
        change[1 + m] += factors->flux * flux + factors->viscous * velocities;
    }
    change[4] += factors->flux * ((lanes_at(pair.u[0] + 4 * field) + pressure[0]) * normal[0] -
                                  (lanes_at(pair.u[1] + 4 * field) + pressure[1]) * normal[1]) +
                 factors->viscous * (heat[0] + heat[1]);
}

/* The inner part of the second differences, all axes: that of each velocity 4/3 once and 1 twice. */
static inline void add_centre(Lanes change[CFD_FIELDS], const double *derived, long field, double viscous) {
    Lanes squares = {0};
    for (int m = 0; m < AXES; m++) {
        Lanes velocity = lanes_at(derived + (VELOCITY + m) * field);
        change[1 + m] -= 20.0 / 3 * viscous * velocity;
        squares += velocity * velocity;
    }
    change[4] -= viscous * (6 * lanes_at(derived + HEAT * field) + squares / 3);
}

/* The linear part of all axes. */
static inline Lanes linear(const double *u, const Lanes *x, const double *y, const double *z,
                           const long step[AXES]) {
    Lanes sum = (x[2] + (y[2] + z[2])) * lanes_at(u);
    for (int t = 0; t < TAPS; t++)
        if (t != GHOSTS)
            sum += x[t] * lanes_at(u + (t - GHOSTS)) + y[t] * lanes_at(u + (t - GHOSTS) * step[Y]) +
                   z[t] * lanes_at(u + (t - GHOSTS) * step[Z]);
    return sum;
}

void rhs_begin(const Cell *cell, double *derived, int k) {
    derive_plane(cell, derived, k - 1);
    derive_plane(cell, derived, k);
}

void rhs_plane(const Cells *cells, const Cell *cell, const RhsFactors *factors, double *derived, int k) {
    derive_plane(cell, derived, k + 1);
    const double *below = derived_plane(cell, derived, k - 1), *here = derived_plane(cell, derived, k),
                 *above = derived_plane(cell, derived, k + 1);
    const long field = cell->field, *step = cell->step;
    double y[TAPS], z[TAPS];
    taps_at(cells->n, cell->first[Z] + k, factors->spread[Z], factors->fourth, z);
    for (int j = cell->begin[Y]; j < cell->end[Y]; j++) {
        taps_at(cells->n, cell->first[Y] + j, factors->spread[Y], factors->fourth, y);
        const Lanes *x = (const Lanes *)cell->weights;
        /* hot loop: vector types */
        for (int i = cell->begin[X]; i < cell->end[X]; i += LANES, x += TAPS) {
            long at = point_at(cell, i, j, k), in_plane = i + j * step[Y];
            const double *u = cell->u + at, *centre = here + in_plane;
            Lanes change[CFD_FIELDS];
            for (int m = 0; m < CFD_FIELDS; m++)
                change[m] = lanes_at(cell->forcing + at + m * field) + linear(u + m * field, x, y, z, step);
            add_centre(change, centre, field, factors->viscous);
            add_axis(change, pair_along(u, centre, 1), field, X, factors);
            add_axis(change, pair_along(u, centre, step[Y]), field, Y, factors);
            Pair pair = {.u = {u - step[Z], u + step[Z]}, .derived = {below + in_plane, above + in_plane}};
            add_axis(change, pair, field, Z, factors);
            LaneMask mask = lanes_between(0, cell->end[X] - 1 - i);
            for (int m = 0; m < CFD_FIELDS; m++)
                lanes_put(cell->rhs + at + m * field, lanes_only(change[m], mask));
        }
    }
}
