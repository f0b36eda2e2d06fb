#include "bt_turn.h"

/* Full lanes. */
size_t turned_bytes(const Cells *cells) {
    size_t points = (size_t)(cells_longest(cells) + 2 + LANES - 1) / LANES * LANES;
    return points * CFD_FIELDS * BUNDLE * sizeof(Lanes);
}

/* A square of numbers, rows become columns: at each width the off-diagonal quarters of blocks of twice that
   width change places. */
static inline void turn(Lanes row[LANES]) {
#pragma GCC unroll 3
    for (int width = 1; width < LANES; width *= 2) {
        LaneMask upper, lower; /* lanes of two rows as if behind each other */
#pragma GCC unroll 8
        for (int lane = 0; lane < LANES; lane++) {
            upper[lane] = lane & width ? LANES + lane - width : lane;
            lower[lane] = lane & width ? LANES + lane : lane + width;
        }
#pragma GCC unroll 8
        for (int r = 0; r < LANES; r++)
            if (!(r & width)) {
                Lanes a = row[r], b = row[r + width];
                row[r] = __builtin_shuffle(a, b, upper);
                row[r + width] = __builtin_shuffle(a, b, lower);
            }
    }
}

/* Line `line` of a slab of lines along x; behind the last inner one, that one again. */
static long line_at(const Cell *cell, int slab, int line) {
    int last = inner_points(cell, Y) - 1;
    return point_at(cell, 0, cell->begin[Y] + (line < last ? line : last), cell->begin[Z] + slab);
}

void turn_in(const Cell *cell, const double *from, int slab, int group, int first, int points, Lanes *to) {
    for (int m = 0; m < CFD_FIELDS; m++)
        /* hot loop: vector types */
        for (int p = 0; p < points; p += LANES) {
            Lanes square[LANES];
            for (int l = 0; l < LANES; l++)
                square[l] =
                    lanes_at(from + line_at(cell, slab, group * LANES + l) + m * cell->field + first + p);
            turn(square);
            for (int l = 0; l < LANES; l++)
                to[turned_at(p + l, m)] = square[l];
        }
}

void turn_back(const Cell *cell, double *to, int slab, int group, const Lanes *from) {
    int points = inner_points(cell, X);
    for (int m = 0; m < CFD_FIELDS; m++)
        /* hot loop: vector types */
        for (int p = 0; p < points; p += LANES) {
            Lanes square[LANES];
            for (int l = 0; l < LANES; l++)
                square[l] = p + l < points ? from[turned_at(p + l, m)] : (Lanes){0};
            turn(square);
            for (int l = 0; l < LANES; l++)
                lanes_put(to + line_at(cell, slab, group * LANES + l) + m * cell->field + cell->begin[X] + p,
                          square[l]);
        }
}
