/* The right-hand side of MG (RNR-94-007). Every point gets a random number, in the order of x, y, z. The
   points with the ten largest and the ten smallest numbers are the charges. */
#include "mg_charges.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "random.h"

enum { CHARGES = 10 };
static const uint64_t seed = 314159265;

typedef struct {
    uint64_t key, point; /* point: number in the whole grid */
} Draw;

/* The ten greatest keys, in descending order. */
typedef struct {
    Draw draw[CHARGES];
} Ten;

static inline void offer(Ten *ten, uint64_t key, uint64_t point) {
    if (key <= ten->draw[CHARGES - 1].key)
        return;
    int at = CHARGES - 1;
    for (; at > 0 && key > ten->draw[at - 1].key; at--)
        ten->draw[at] = ten->draw[at - 1];
    ten->draw[at] = (Draw){key, point};
}

/* ten[0]: of the numbers, ten[1]: of their complements. */
static void draw_own(Ten ten[2], const Grid *v, const Cut *cut) {
    long n = v->nx;
    for (long z = 0; z < v->nz; z++)
        for (long y = 0; y < v->ny; y++) {
            uint64_t point = (uint64_t)(((cut->plane * v->nz + z) * n + cut->row * v->ny + y) * n);
            uint64_t state = random_jump(seed, point);
            for (long x = 0; x < n; x++, point++) {
                state = random_step(state, random_factor);
                offer(&ten[0], state, point);
                offer(&ten[1], random_mask - state, point);
            }
        }
}

static void merge_ranks(Ten ten[2], int ranks) {
    Ten *all = malloc(2 * (size_t)ranks * sizeof *all);
    if (!all)
        fail("out of memory");
    int bytes = (int)(2 * sizeof *ten);
    MPI(MPI_Allgather(ten, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD));
    memset(ten, 0, 2 * sizeof *ten);
    for (int part = 0; part < 2 * ranks; part++)
        for (int k = 0; k < CHARGES; k++)
            offer(&ten[part % 2], all[part].draw[k].key, all[part].draw[k].point);
    free(all);
}

static void place(const Grid *v, const Cut *cut, uint64_t point, double value) {
    long n = v->nx, at = (long)point;
    long y = at / n % n - cut->row * v->ny, z = at / n / n - cut->plane * v->nz;
    if (z >= 0 && z < v->nz && y >= 0 && y < v->ny)
        row(v, z, y)[at % n] = value;
}

void charges_place(const Grid *v, const Cut *cut, bool spoil) {
    Ten ten[2] = {0};
    draw_own(ten, v, cut);
    merge_ranks(ten, cut->planes * cut->rows);
    for (int k = 0; k < CHARGES; k++) {
        place(v, cut, ten[0].draw[k].point, spoil && k == 0 ? 1.01 : 1);
        place(v, cut, ten[1].draw[k].point, -1);
    }
}
