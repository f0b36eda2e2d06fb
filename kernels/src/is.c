/* IS (RNR-94-007): ranks of small integer keys, by buckets that are dealt out to the ranks of the job. */
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "kernel.h"
#include "random.h"

enum { LOG_BUCKETS = 10, BUCKETS = 1 << LOG_BUCKETS, TESTS = 5, ROUNDS = 10, MARKED = 2 * ROUNDS + 1 };
static const uint64_t seed = 314159265;

static const char *const class_names[] = {"S", "W", "A", "B"};

/* Test key t has rank `rank` +- (round - late), + where bit t of `rising` is set. */
static const struct {
    int log_keys, log_range;
    int index[TESTS], rank[TESTS];
    unsigned rising;
    int late_rising, late_falling;
} classes[] = {
    {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, 0x07, 0, 0},
    {20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}, 0x03, 2, 0},
    {23,
     19,
     {2112377, 662041, 5336171, 3642833, 4250760},
     {104, 17523, 123928, 8288932, 8388264},
     0x07,
     1,
     1},
    {25,
     21,
     {41869, 812306, 5102857, 18232239, 26860214},
     {33422937, 10244, 59149, 33135281, 99},
     0x16,
     0,
     0},
};

typedef struct {
    World world;
    Common common;
    Arena arena;
    size_t class;
    long rounds, keys, range, capacity; /* keys: of this rank; capacity: keys it may receive */
    int shift;                          /* bucket of a key = key >> shift */
    long turn;                          /* rounds done by slices */
    double owed;                        /* messages of extra rounds not sent yet, in rounds */
    int32_t *key, *sorted, *received;
    uint32_t *less;           /* of the own range: how many keys of this rank are below (lowest + k) */
    int32_t original[MARKED]; /* keys that the rounds overwrite, on rank 0 */
    int32_t count[BUCKETS + TESTS], total[BUCKETS + TESTS]; /* keys by bucket; behind them the test keys */
    int *send, *send_at, *receive, *receive_at;             /* by rank */
    long lowest, own_range, held, below;                    /* held: keys received; below: on lower ranks */
    double comm;
} Is;

static void count_buckets(Is *s, long keys) {
    memset(s->count, 0, sizeof s->count);
    for (long i = 0; i < keys; i++)
        s->count[s->key[i] >> s->shift]++;
    for (int t = 0; t < TESTS; t++) {
        long at = classes[s->class].index[t] - s->world.rank * s->keys;
        if (at >= 0 && at < s->keys)
            s->count[BUCKETS + t] = s->key[at];
    }
}

static void sum_buckets(Is *s) {
    MPI_TIMED(s->comm,
              MPI_Allreduce(s->count, s->total, BUCKETS + TESTS, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
}

/* Buckets in order to ranks in order: a rank is full once all up to it hold their even share of the keys. */
static void deal_buckets(Is *s) {
    long all_keys = s->keys * s->world.size, dealt = 0, held = 0;
    int rank = 0, first_bucket = 0, sent = 0;
    for (int r = 0; r < s->world.size; r++)
        s->send[r] = s->send_at[r] = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        s->send[rank] += s->count[bucket];
        sent += s->count[bucket];
        held += s->total[bucket];
        dealt += s->total[bucket];
        bool last_rank = rank == s->world.size - 1;
        if (bucket == BUCKETS - 1 || (!last_rank && dealt * s->world.size >= (rank + 1) * all_keys)) {
            if (rank == s->world.rank) {
                s->lowest = (long)first_bucket << s->shift;
                s->own_range = (long)(bucket + 1 - first_bucket) << s->shift;
                s->held = held;
                s->below = dealt - held;
            }
            if (!last_rank)
                s->send_at[++rank] = sent;
            first_bucket = bucket + 1;
            held = 0;
        }
    }
}

static void group_by_bucket(Is *s, long keys) {
    int32_t next[BUCKETS];
    next[0] = 0;
    for (int bucket = 1; bucket < BUCKETS; bucket++)
        next[bucket] = next[bucket - 1] + s->count[bucket - 1];
    for (long i = 0; i < keys; i++) {
        int32_t key = s->key[i];
        s->sorted[next[key >> s->shift]++] = key;
    }
}

static void exchange(Is *s) {
    if (s->held > s->capacity)
        fail("is: %ld keys for one rank, room for %ld", s->held, s->capacity);
    MPI_TIMED(s->comm, MPI_Alltoall(s->send, 1, MPI_INT, s->receive, 1, MPI_INT, MPI_COMM_WORLD));
    s->receive_at[0] = 0;
    for (int r = 1; r < s->world.size; r++)
        s->receive_at[r] = s->receive_at[r - 1] + s->receive[r - 1];
    MPI_TIMED(s->comm, MPI_Alltoallv(s->sorted, s->send, s->send_at, MPI_INT32_T, s->received, s->receive,
                                     s->receive_at, MPI_INT32_T, MPI_COMM_WORLD));
}

/* The first `held` of the received keys, the first `range` of the key values: all of them but in
 * extra_part(). */
static void rank_received(Is *s, long held, long range) {
    uint32_t *less = s->less + 1;
    memset(s->less, 0, (size_t)(range + 1) * sizeof *less);
    for (long i = 0; i < held; i++)
        less[s->received[i] - s->lowest]++;
    for (long k = 0; k < range; k++)
        s->less[k + 1] += s->less[k];
}

static void rank_keys(Is *s) {
    count_buckets(s, s->keys);
    sum_buckets(s);
    deal_buckets(s);
    group_by_bucket(s, s->keys);
    exchange(s);
    rank_received(s, s->held, s->own_range);
}

/* Planted extra work, less than a round: every loop goes over that share of its range. Messages cannot be cut
   like that without costing more than their share: those of a whole round are sent once the shares add up to
   one. */
static void extra_part(Is *s, double share) {
    long keys = (long)(share * (double)s->keys);
    count_buckets(s, keys);
    group_by_bucket(s, keys);
    rank_received(s, (long)(share * (double)s->held), (long)(share * (double)s->own_range));
    if (take_whole(&s->owed, share) > 0) {
        sum_buckets(s);
        exchange(s);
    }
}

/* Round 1 to 10 overwrites two keys first. */
static void mark_keys(Is *s, int round) {
    if (s->world.rank == 0) {
        s->key[round] = round;
        s->key[round + ROUNDS] = (int32_t)(s->range - round);
    }
}

static long expected_rank(const Is *s, int test, int round) {
    bool rising = classes[s->class].rising >> test & 1;
    long rank = classes[s->class].rank[test];
    return rising ? rank + round - classes[s->class].late_rising
                  : rank - round + classes[s->class].late_falling;
}

/* Test keys among the own ones whose rank is not as published. */
static long wrong_ranks(const Is *s, int round) {
    long wrong = 0;
    for (int t = 0; t < TESTS; t++) {
        long key = s->total[BUCKETS + t] - s->lowest;
        if (key >= 0 && key < s->own_range)
            wrong += s->below + s->less[key] != expected_rank(s, t, round);
    }
    return wrong;
}

/* Writes the keys in the order of their ranks; returns how many stand before a smaller one, ranks of the job
   included. */
static long wrong_order(Is *s) {
    for (long i = 0; i < s->held; i++)
        s->sorted[s->less[s->received[i] - s->lowest]++] = s->received[i];
    long wrong = 0;
    for (long i = 1; i < s->held; i++)
        wrong += s->sorted[i - 1] > s->sorted[i];
    /* A rank may hold no key: the highest of all lower ranks is what its first must not be below. */
    int32_t highest = s->held ? s->sorted[s->held - 1] : -1, before = -1;
    MPI(MPI_Exscan(&highest, &before, 1, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD));
    return wrong + (s->world.rank > 0 && s->held > 0 && s->sorted[0] < before);
}

static void make_keys(Is *s) {
    uint64_t state = random_jump(seed, 4 * (uint64_t)s->keys * (uint64_t)s->world.rank);
    double scale = (double)s->range / 4;
    for (long i = 0; i < s->keys; i++) {
        double sum = 0; /* exact: at most 48 bits */
        for (int k = 0; k < 4; k++)
            sum += random_next(&state);
        s->key[i] = (int32_t)(scale * sum);
    }
    long at = classes[s->class].index[0] - s->world.rank * s->keys;
    if (s->common.corrupt && at >= 0 && at < s->keys)
        s->key[at] ^= (int32_t)(s->range / 2);
    memcpy(s->original, s->key, sizeof s->original);
}

static void *prepare(Spec *spec, const World *world) {
    Is *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_common(spec);
    s->class = spec_choice(spec, "class", class_names, 4, 0);
    s->rounds = spec_integer(spec, "rounds", 4, 1, 1 << 20);
    long all_keys = 1L << classes[s->class].log_keys;
    if (!power_of_two(world->size) || world->size > BUCKETS / 4)
        fail("is: runs on 1, 2, 4, ... %d ranks, not on %d", BUCKETS / 4, world->size);
    s->keys = all_keys / world->size;
    s->range = 1L << classes[s->class].log_range;
    s->shift = classes[s->class].log_range - LOG_BUCKETS;
    /* No more than the even share and one bucket, of which the fullest holds 8/3 of the mean (the density of
       the mean of four uniform numbers at its peak), 4 here. */
    s->capacity = s->keys + 4 * all_keys / BUCKETS;
    s->send = calloc(4 * (size_t)world->size, sizeof *s->send);
    if (!s->send)
        fail("out of memory");
    s->send_at = s->send + world->size;
    s->receive = s->send_at + world->size;
    s->receive_at = s->receive + world->size;

    size_t own = (size_t)s->keys * sizeof(int32_t), most = (size_t)s->capacity * sizeof(int32_t);
    size_t ranks = ((size_t)s->range + 1) * sizeof(uint32_t);
    s->arena = arena_make(arena_need(own) + 2 * arena_need(most) + arena_need(ranks), s->common.pages);
    s->key = arena_take(&s->arena, own);
    s->sorted = arena_take(&s->arena, most);
    s->received = arena_take(&s->arena, most);
    s->less = arena_take(&s->arena, ranks);
    arena_touch(&s->arena);
    make_keys(s);
    return s;
}

static void slice(void *state, Slice *out) {
    Is *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->comm = 0;
    double start = now();
    for (long round = 0; round < s->rounds; round++) {
        mark_keys(s, (int)(s->turn++ % ROUNDS) + 1);
        rank_keys(s);
    }
    double extra = s->common.extra * (double)s->rounds;
    for (; extra >= 1; extra--)
        rank_keys(s);
    if (extra > 0)
        extra_part(s, extra);
    double seconds = now() - start;
    double all_keys = (double)s->keys * s->world.size;
    out->count = 1;
    out->part[0] = (Part){
        .metric = "rate", .seconds = seconds, .comm_seconds = s->comm, .work = all_keys * (double)s->rounds};
}

static void verify(void *state, Verified *v) {
    Is *s = state;
    long wrong[2] = {0, 0}, held;
    if (s->world.rank == 0)
        memcpy(s->key, s->original, sizeof s->original);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    for (int round = 1; round <= ROUNDS; round++) {
        mark_keys(s, round);
        rank_keys(s);
        wrong[0] += wrong_ranks(s, round);
    }
    v->seconds = now() - start;
    v->work = (double)ROUNDS * (double)s->keys * s->world.size;
    wrong[1] = wrong_order(s);
    held = s->held;
    MPI(MPI_Allreduce(MPI_IN_PLACE, wrong, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    MPI(MPI_Allreduce(MPI_IN_PLACE, &held, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    long keys = s->keys * s->world.size;
    v->ok = wrong[0] == 0 && wrong[1] == 0 && held == keys;
    text_add(&v->expected, "\"class\":\"%s\",\"wrong_ranks\":0,\"wrong_order\":0,\"keys\":%ld",
             class_names[s->class], keys);
    text_add(&v->found, "\"wrong_ranks\":%ld,\"wrong_order\":%ld,\"keys\":%ld,\"ranks_tested\":%d", wrong[0],
             wrong[1], held, TESTS * ROUNDS);
}

static void release(void *state) {
    Is *s = state;
    arena_free(&s->arena);
    free(s->send);
    free(s);
}

const Kernel is_kernel = {"is", prepare, slice, verify, release};
