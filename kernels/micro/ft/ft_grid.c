/* Transforms in three dimensions. Planes with one x are transformed within a rank; transforms along x need an
   exchange between all ranks. The inverse sends each block of rows as soon as it is transformed along x. */
#include "ft_grid.h"

#include <omp.h>
#include <stdlib.h>

#include "fail.h"
#include "random.h"

enum { X, Y, Z };
enum { TOGETHER = 8 }; /* as many rows as the first pass along y takes lie next to each other */

static const uint64_t seed = 314159265;
static const size_t cached = (size_t)16 << 20; /* bytes; the spectrum and the field are as much each */

typedef uint64_t Words __attribute__((vector_size(LANES * sizeof(uint64_t))));

static void *taken(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory)
        fail("out of memory");
    return memory;
}

static void lay_out(Grid *g) {
    g->planes = g->size[X] / g->ranks;
    g->rows = g->size[Y] / g->ranks;
    g->depth = g->size[Z] / LANES;
    g->together = g->rows < TOGETHER ? g->rows : TOGETHER;
    g->blocks = g->rows / g->together;
    g->piece = g->planes * g->together * g->depth;
    g->row_at = taken((size_t)g->size[Y], sizeof *g->row_at);
    for (long y = 0; y < g->size[Y]; y++)
        g->row_at[y] = y / g->together * g->piece + y % g->together * g->depth;
    g->z_at = taken((size_t)g->size[Z], sizeof *g->z_at);
    for (long z = 0; z < g->size[Z]; z++)
        g->z_at[z] = g->row_at[z / g->depth] + z % g->depth;
    g->x_at = taken((size_t)g->size[X], sizeof *g->x_at);
}

static void take_memory(Grid *g, Pages pages) {
    int longest = g->size[X]; /* no class has a longer one */
    size_t points = (size_t)(g->planes * g->size[Y] * g->depth);
    size_t staged = (size_t)((g->ranks - 1) * g->blocks * g->piece);
    size_t plane = (size_t)(g->size[Y] * g->depth), threads = (size_t)g->threads;
    g->arena = arena_make(
        arena_need(points * sizeof(Point)) + arena_need((points + staged) * sizeof(Point)) +
            threads * (arena_need(plane * sizeof(Point)) + arena_need((size_t)longest * sizeof(Point))),
        pages);
    g->streamed = points * sizeof(Point) > cached;
    g->spectrum = arena_take(&g->arena, points * sizeof(Point));
    g->field = arena_take(&g->arena, (points + staged) * sizeof(Point));
    g->stage = g->field + points;
    g->scratch = taken(threads, sizeof *g->scratch);
    for (size_t t = 0; t < threads; t++) {
        g->scratch[t].line = arena_take(&g->arena, (size_t)longest * sizeof(Point));
        g->scratch[t].plane = arena_take(&g->arena, plane * sizeof(Point));
    }
    arena_touch(&g->arena);
}

Grid ft_grid_make(const int size[3], const World *world, int threads, Pages pages) {
    Grid grid = {
        .size = {size[X], size[Y], size[Z]}, .rank = world->rank, .ranks = world->size, .threads = threads};
    for (int d = 0; d < 3; d++)
        grid.decay[d] = taken((size_t)size[d], sizeof(double));
    lay_out(&grid);
    take_memory(&grid, pages);
    size_t messages = (size_t)((grid.ranks - 1) * grid.blocks);
    grid.receiving = taken(2 * messages + 1, sizeof(MPI_Request));
    grid.sending = grid.receiving + messages;
    return grid;
}

void ft_grid_free(Grid *g) {
    for (int d = 0; d < 3; d++) {
        fft_free(&g->fft[d]);
        free(g->decay[d]);
    }
    free(g->row_at);
    free(g->z_at);
    free(g->x_at);
    free(g->scratch);
    free(g->receiving);
    arena_free(&g->arena);
}

bool ft_grid_value(const Grid *g, int x, int y, int z, double value[2]) {
    long plane = x - g->rank * g->planes;
    if (plane < 0 || plane >= g->planes)
        return false;
    const Point *point =
        g->field + plane * g->together * g->depth + g->row_at[y / LANES * LANES] + g->z_at[z];
    value[0] = point->re[y % LANES];
    value[1] = point->im[y % LANES];
    return true;
}

/* Return the next random number of each lane. */
static inline Lanes next_numbers(Words *state) {
    *state = *state * random_factor & random_mask;
    return (Lanes)(*state | UINT64_C(0x4330000000000000)) * 0x1p-46 - 0x1p6;
}

/* Number 2 (x + nx (y + ny z)) of the sequence is the last one before a point of the first field: a product
   of powers, one of each index. */
typedef struct {
    uint64_t at, per_row, per_plane; /* at: of y and z = 0 */
} Sequence;

static Sequence sequence_at(const Grid *g, long x) {
    Sequence s = {.at = random_jump(seed, 2 * (uint64_t)x)};
    s.per_row = random_power(random_factor, 2 * (uint64_t)g->size[X]);
    s.per_plane = random_power(s.per_row, (uint64_t)g->size[Y]);
    return s;
}

/* The first field along z, at the y of the sequence and the next ones, which it then has behind it. */
static void first_lines(Sequence *s, long length, Point *line) {
    Words state;
    for (int lane = 0; lane < LANES; lane++, s->at = random_step(s->at, s->per_row))
        state[lane] = s->at;
    /* hot loop: vector types */
    for (long z = 0; z < length; z++) {
        Words at = state;
        line[z].re = next_numbers(&at);
        line[z].im = next_numbers(&at);
        state = state * s->per_plane & random_mask;
    }
}

static Scratch *own_scratch(const Grid *g) {
    return &g->scratch[omp_get_thread_num()];
}

/* Random numbers along z -> transform along z -> along y. */
static void begin_plane(const Grid *g, long plane, Point *transposed) {
    const Scratch *own = own_scratch(g);
    const Fft *along_y = &g->fft[Y], *along_z = &g->fft[Z];
    Sequence numbers = sequence_at(g, g->rank * g->planes + plane);
    for (long y = 0; y < g->size[Y]; y += LANES) {
        Lines lines = {own->plane + y * g->depth, along_z->straight, false};
        first_lines(&numbers, g->size[Z], lines.base);
        fft_forward(along_z, lines, lines.base, lines);
    }
    for (long z = 0; z < g->depth; z++) {
        for (long y = 0; y < g->size[Y]; y += LANES)
            fft_turn(own->plane + y * g->depth + z * LANES, own->line + y);
        Lines lines = {own->line, along_y->straight, false};
        Lines to = {transposed + plane * g->together * g->depth + z, g->row_at, g->streamed};
        fft_forward(along_y, lines, own->line, to);
    }
}

/* Elements x of a rank, of row 0 of a block, begin at `first` of the field. */
static void set_x_at(Grid *g, long rank, long first) {
    for (long plane = 0; plane < g->planes; plane++)
        g->x_at[rank * g->planes + plane] = first + plane * g->together * g->depth;
}

void ft_grid_begin(Grid *g) {
    for (int d = 0; d < 3; d++) {
        fft_free(&g->fft[d]);
        g->fft[d] = fft_make(g->size[d]);
    }
    Point *transposed = g->ranks > 1 ? g->spectrum : g->field;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (long plane = 0; plane < g->planes; plane++)
        begin_plane(g, plane, transposed);
    if (g->ranks > 1) {
        int numbers = (int)(g->blocks * g->piece * (long)(sizeof(Point) / sizeof(double)));
        MPI_TIMED(g->comm, MPI_Alltoall(g->spectrum, numbers, MPI_DOUBLE, g->field, numbers, MPI_DOUBLE,
                                        MPI_COMM_WORLD));
    }
    for (long rank = 0; rank < g->ranks; rank++)
        set_x_at(g, rank, rank * g->blocks * g->piece);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (long row = 0; row < g->rows; row++)
        for (long z = 0; z < g->depth; z++) {
            Lines from = {g->field + g->row_at[row] + z, g->x_at, false};
            Lines to = {g->spectrum + (row * g->depth + z) * g->size[X], g->fft[X].straight, g->streamed};
            fft_forward(&g->fft[X], from, own_scratch(g)->line, to);
        }
}

/* Transform lines along x of one row of the spectrum. */
static void inverse_row(const Grid *g, long row, long z) {
    const Fft *along_x = &g->fft[X];
    double of_y = g->decay[Y][g->rank * g->rows + row];
    Lanes across;
    for (int lane = 0; lane < LANES; lane++)
        across[lane] = of_y * g->decay[Z][z * LANES + lane];
    Lines from = {g->spectrum + (row * g->depth + z) * g->size[X], along_x->straight, false};
    Lines to = {g->field + row % g->together * g->depth + z, g->x_at, g->streamed};
    fft_inverse_scaled(along_x, from, g->decay[X], &across, own_scratch(g)->line, to);
}

/* Transform the lines along y, then those along z, of one plane. */
static void inverse_plane(const Grid *g, long plane) {
    const Scratch *own = own_scratch(g);
    const Fft *along_y = &g->fft[Y], *along_z = &g->fft[Z];
    Point *base = g->field + plane * g->together * g->depth;
    for (long z = 0; z < g->depth; z++) {
        Lines from = {base + z, g->row_at, false};
        Lines lines = {own->plane + z * g->size[Y], along_y->straight, false};
        fft_inverse(along_y, from, lines.base, lines);
    }
    for (long y = 0; y < g->size[Y]; y += LANES) {
        for (long z = 0; z < g->depth; z++)
            fft_turn(own->plane + z * g->size[Y] + y, own->line + z * LANES);
        Lines lines = {own->line, along_z->straight, false};
        Lines to = {base + g->row_at[y], g->z_at, false};
        fft_inverse(along_z, lines, own->line, to);
    }
}

/* Return how many numbers of the first `lines` lines of a block one rank sends to another. */
static int numbers_of(const Grid *g, long lines) {
    return (int)(lines * g->planes * (long)(sizeof(Point) / sizeof(double)));
}

static long lines_of_block(const Grid *g) {
    return g->together * g->depth;
}

/* Return how many of the first `lines` lines are in block `block`. */
static long lines_in(const Grid *g, long block, long lines) {
    long rest = lines - block * lines_of_block(g);
    return rest < lines_of_block(g) ? rest : lines_of_block(g);
}

/* Start to receive all pieces that other ranks will send. */
static void receive_blocks(Grid *g, long blocks, long lines) {
    MPI_Request *request = g->receiving;
    for (long block = 0; block < blocks; block++)
        for (int distance = 1; distance < g->ranks; distance++) {
            int from = (g->rank + g->ranks - distance) % g->ranks;
            MPI_TIMED(g->comm, MPI_Irecv(g->field + (from * g->blocks + block) * g->piece,
                                         numbers_of(g, lines_in(g, block, lines)), MPI_DOUBLE, from,
                                         (int)block, MPI_COMM_WORLD, request++));
        }
}

/* Return the memory from which a piece of a block is sent to the rank that will own it. */
static Point *staged_piece(const Grid *g, long block, long rank) {
    return g->stage + ((rank < g->rank ? rank : rank - 1) * g->blocks + block) * g->piece;
}

static void send_block(Grid *g, long block, long lines) {
    MPI_Request *request = g->sending + block * (g->ranks - 1);
    for (int distance = 1; distance < g->ranks; distance++) {
        int to = (g->rank + distance) % g->ranks;
        MPI_TIMED(g->comm, MPI_Isend(staged_piece(g, block, to), numbers_of(g, lines), MPI_DOUBLE, to,
                                     (int)block, MPI_COMM_WORLD, request++));
    }
}

static void wait_for(Grid *g, MPI_Request *requests, long count) {
    if (count > 0)
        MPI_TIMED(g->comm, MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE));
}

/* Transform a block along x, and write each piece to the memory from which its owner gets it. */
static void inverse_block(Grid *g, long block, long lines) {
    long first = block * g->together;
    for (long rank = 0; rank < g->ranks; rank++)
        set_x_at(g, rank,
                 rank == g->rank ? (rank * g->blocks + block) * g->piece
                                 : staged_piece(g, block, rank) - g->field);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (long line = 0; line < lines; line++)
        inverse_row(g, first + line / g->depth, line % g->depth);
    send_block(g, block, lines);
}

/* The first `lines` lines along x of this rank, then the first `planes` planes. */
static void inverse(Grid *g, long lines, long planes) {
    long blocks = (lines + lines_of_block(g) - 1) / lines_of_block(g);
    receive_blocks(g, blocks, lines);
    for (long block = 0; block < blocks; block++)
        inverse_block(g, block, lines_in(g, block, lines));
    wait_for(g, g->receiving, blocks * (g->ranks - 1));
    wait_for(g, g->sending, blocks * (g->ranks - 1));
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (long plane = 0; plane < planes; plane++)
        inverse_plane(g, plane);
}

void ft_grid_inverse(Grid *g) {
    inverse(g, g->rows * g->depth, g->planes);
}

void ft_grid_inverse_part(Grid *g, double share) {
    long lines = take_whole(&g->owed_lines, share * (double)(g->rows * g->depth));
    long planes = take_whole(&g->owed_planes, share * (double)g->planes);
    inverse(g, lines, planes);
}
