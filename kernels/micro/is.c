/* IS (RNR-94-007): computes the ranks of small integer keys (their positions in sorted order), by buckets
   that are distributed among the MPI ranks. */
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "kernel.h"
#include "random.h"

/* HALVES: counting and grouping process both halves of the keys at the same time, with separate counters for
   each half. If a counter was stored a few instructions ago, its next load must wait for that store. A CPU
   that has seen this often lets every load of a counter wait for the previous store. With two sets of
   counters there are two independent chains. On Zen 3 this halves the time of grouping. */
enum { MOST_BUCKETS = 1024, HALVES = 2, TESTS = 5, ROUNDS = 10, MARKED = 2 * ROUNDS + 1 };
static const uint64_t seed = 314159265;

static const char *const class_names[] = {"S", "W", "A", "B", "C"};
enum { CLASSES = sizeof class_names / sizeof *class_names };

/* Test key t has rank `rank` +- (round - late), + where bit t of `rising` is set. */
static const struct {
    int log_keys, log_range;
    int index[TESTS], rank[TESTS];
    unsigned rising;
    int late_rising, late_falling;
} classes[CLASSES] = {
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
    {27,
     23,
     {44172927, 72999161, 74326391, 129606274, 21736814},
     {61147, 882988, 266290, 133997595, 133525895},
     0x07,
     0,
     0},
};

typedef struct {
    World world;
    Common common;
    Arena arena;
    size_t class;
    long keys, range;              /* keys: of this rank */
    long most_held, most_received; /* maximum numbers of keys, for which there is room */
    int buckets, shift;            /* bucket of a key = key >> shift */
    long turn;                     /* rounds done by slices */
    double owed;                   /* messages of extra rounds not sent yet, in rounds */
    int32_t *key, *grouped, *received;
    uint32_t *less;           /* of the own range: how many keys of this rank are below (lowest + k) */
    int32_t original[MARKED]; /* keys that the rounds overwrite, on rank 0 */
    int32_t half_count[HALVES][MOST_BUCKETS];                         /* by bucket */
    int32_t count[MOST_BUCKETS + TESTS], total[MOST_BUCKETS + TESTS]; /* by bucket; behind, the test keys */
    int *send, *send_at, *receive, *receive_at;                       /* by rank; none to itself */
    const int32_t *kept;                                              /* keys that stay here, in `grouped` */
    long keeps, lowest, own_range, held, below; /* held: keys kept and received; below: on lower ranks */
    double comm;
} Is;

/* Return the number of buckets: few enough that the cache lines to which the next keys go stay in the
   first-level cache, and enough to distribute them evenly. */
static int choose_buckets(int ranks) {
    enum { LEAST = 256, PER_RANK = 128 };
    int wanted = PER_RANK * ranks;
    return wanted < LEAST ? LEAST : wanted > MOST_BUCKETS ? MOST_BUCKETS : wanted;
}

/* The second half of an odd number of keys holds one more. */
static void count_buckets(Is *s, long keys) {
    const int shift = s->shift; /* the compiler must assume that a store of a count changes *s */
    const int32_t *first = s->key, *second = s->key + keys / HALVES;
    int32_t *of_first = s->half_count[0], *of_second = s->half_count[1];
    memset(s->half_count, 0, sizeof s->half_count);
    memset(s->count, 0, sizeof s->count);
    /* Not vectorised: two keys of one vector may be in the same bucket. */
    for (long i = 0; i < keys / HALVES; i++) {
        of_first[first[i] >> shift]++;
        of_second[second[i] >> shift]++;
    }
    if (keys % HALVES)
        of_second[s->key[keys - 1] >> shift]++;
    for (int bucket = 0; bucket < s->buckets; bucket++)
        s->count[bucket] = of_first[bucket] + of_second[bucket];
    for (int t = 0; t < TESTS; t++) {
        long at = classes[s->class].index[t] - s->world.rank * s->keys;
        if (at >= 0 && at < s->keys)
            s->count[s->buckets + t] = s->key[at];
    }
}

static void sum_buckets(Is *s) {
    MPI_TIMED(s->comm,
              MPI_Allreduce(s->count, s->total, s->buckets + TESTS, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
}

/* Distribute the buckets to the ranks in order. A rank is full when all ranks up to it have their even share
 * of keys. */
static void deal_buckets(Is *s) {
    long all_keys = s->keys * s->world.size, dealt = 0, held = 0;
    int rank = 0, first_bucket = 0, sent = 0;
    for (int r = 0; r < s->world.size; r++)
        s->send[r] = s->send_at[r] = 0;
    for (int bucket = 0; bucket < s->buckets; bucket++) {
        s->send[rank] += s->count[bucket];
        sent += s->count[bucket];
        held += s->total[bucket];
        dealt += s->total[bucket];
        bool last_rank = rank == s->world.size - 1;
        if (bucket == s->buckets - 1 || (!last_rank && dealt * s->world.size >= (rank + 1) * all_keys)) {
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
    s->kept = s->grouped + s->send_at[s->world.rank];
    s->keeps = s->send[s->world.rank];
    s->send[s->world.rank] = 0;
}

/* Append a key to the group of its bucket. A core commits stores in order, so a store to a line that is not
   in the cache holds up all later ones. So the next line of the group is prefetched for writing while the
   current one fills. */
static inline void append_key(int32_t *grouped, int32_t *next, int shift, int32_t key) {
    enum { LINE = 64 / sizeof(int32_t) };
    int32_t *to = grouped + next[key >> shift]++;
    __builtin_prefetch(to + LINE, 1);
    *to = key;
}

/* Group the keys by bucket. In each bucket, the keys of the first half of all keys precede those of the
 * second. */
static void group_by_bucket(Is *s, long keys) {
    const int shift = s->shift;
    const int32_t *first = s->key, *second = s->key + keys / HALVES;
    int32_t of_first[MOST_BUCKETS], of_second[MOST_BUCKETS], next = 0;
    for (int bucket = 0; bucket < s->buckets; bucket++) {
        of_first[bucket] = next;
        of_second[bucket] = next += s->half_count[0][bucket];
        next += s->half_count[1][bucket];
    }
    /* Not vectorised: where a key goes depends on the keys before it. */
    for (long i = 0; i < keys / HALVES; i++) {
        append_key(s->grouped, of_first, shift, first[i]);
        append_key(s->grouped, of_second, shift, second[i]);
    }
    if (keys % HALVES)
        append_key(s->grouped, of_second, shift, s->key[keys - 1]);
}

static void exchange(Is *s) {
    if (s->held > s->most_held || s->held - s->keeps > s->most_received)
        fail("is: %ld keys for one rank, %ld of them its own, room for %ld", s->held, s->keeps, s->most_held);
    MPI_TIMED(s->comm, MPI_Alltoall(s->send, 1, MPI_INT, s->receive, 1, MPI_INT, MPI_COMM_WORLD));
    s->receive_at[0] = 0;
    for (int r = 1; r < s->world.size; r++)
        s->receive_at[r] = s->receive_at[r - 1] + s->receive[r - 1];
    MPI_TIMED(s->comm, MPI_Alltoallv(s->grouped, s->send, s->send_at, MPI_INT32_T, s->received, s->receive,
                                     s->receive_at, MPI_INT32_T, MPI_COMM_WORLD));
}

static void count_keys(Is *s, const int32_t *keys, long count) {
    uint32_t *of_value = s->less;
    /* Not vectorised: two keys of one vector may be equal. */
    for (long i = 0; i < count; i++)
        of_value[keys[i] - s->lowest]++;
}

/* Rank the keys that this rank holds. share: part of the key values and of the keys that is processed; 1
   except in extra_part(). */
static void rank_held(Is *s, double share) {
    long range = (long)(share * (double)s->own_range);
    memset(s->less, 0, (size_t)range * sizeof *s->less);
    count_keys(s, s->kept, (long)(share * (double)s->keeps));
    count_keys(s, s->received, (long)(share * (double)(s->held - s->keeps)));
    uint32_t below = 0;
    for (long k = 0; k < range; k++) {
        uint32_t of_value = s->less[k];
        s->less[k] = below;
        below += of_value;
    }
}

static void rank_keys(Is *s) {
    count_buckets(s, s->keys);
    sum_buckets(s);
    deal_buckets(s);
    group_by_bucket(s, s->keys);
    exchange(s);
    rank_held(s, 1);
}

/* Planted extra work of less than a round: every loop processes this share of its range. Partial messages
   would cost more than their share, so the messages of a whole round are sent when the shares have added up
   to one. */
static void extra_part(Is *s, double share) {
    long keys = (long)(share * (double)s->keys);
    count_buckets(s, keys);
    rank_held(s, share);
    group_by_bucket(s, keys);
    if (take_whole(&s->owed, share) > 0) {
        sum_buckets(s);
        exchange(s);
    }
}

/* Overwrite two keys, as each of the rounds 1 to 10 begins. */
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

/* Return the number of test keys on this rank whose rank is not the published one. */
static long wrong_ranks(const Is *s, int round) {
    long wrong = 0;
    for (int t = 0; t < TESTS; t++) {
        long key = s->total[s->buckets + t] - s->lowest;
        if (key >= 0 && key < s->own_range)
            wrong += s->below + s->less[key] != expected_rank(s, t, round);
    }
    return wrong;
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

/* Copy each key to the position given by its rank. */
static void place_keys(Is *s, const int32_t *keys, long count, int32_t *sorted) {
    for (long i = 0; i < count; i++)
        sorted[s->less[keys[i] - s->lowest]++] = keys[i];
}

/* Sort the keys by their ranks. Return how many are followed by a smaller key, also across MPI ranks. The
   sorted keys overwrite the original keys, which are drawn again. */
static long wrong_order(Is *s) {
    int32_t *sorted = s->key;
    place_keys(s, s->kept, s->keeps, sorted);
    place_keys(s, s->received, s->held - s->keeps, sorted);
    long wrong = 0;
    for (long i = 1; i < s->held; i++)
        wrong += sorted[i - 1] > sorted[i];
    /* A rank may hold no key, so the first key is compared with the highest of all lower MPI ranks. */
    int32_t lowest = s->held ? sorted[0] : INT32_MAX;
    int32_t highest = s->held ? sorted[s->held - 1] : -1, before = -1;
    MPI(MPI_Exscan(&highest, &before, 1, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD));
    make_keys(s);
    return wrong + (s->world.rank > 0 && lowest < before);
}

static void *prepare(Spec *spec, const World *world) {
    Is *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_single(spec);
    s->class = spec_choice(spec, "class", class_names, CLASSES, 0);
    long all_keys = 1L << classes[s->class].log_keys;
    if (!power_of_two(world->size) || world->size > MOST_BUCKETS / 4)
        fail("is: runs on 1, 2, 4, ... %d ranks, not on %d", MOST_BUCKETS / 4, world->size);
    s->keys = all_keys / world->size;
    s->range = 1L << classes[s->class].log_range;
    s->buckets = choose_buckets(world->size);
    for (long width = s->range / s->buckets; width > 1; width /= 2)
        s->shift++;
    /* A rank gets at most its even share and one bucket more. The fullest bucket has 8/3 of the mean number
       of keys (the peak of the density of the mean of four uniform numbers). 4 is used here, which also
       covers random deviations. Each of n ranks draws about 1/n of the keys of a bucket. */
    s->most_held = world->size > 1 ? s->keys + 4 * all_keys / s->buckets : s->keys;
    s->most_received = s->most_held - s->most_held / world->size;
    s->send = calloc(4 * (size_t)world->size, sizeof *s->send);
    if (!s->send)
        fail("out of memory");
    s->send_at = s->send + world->size;
    s->receive = s->send_at + world->size;
    s->receive_at = s->receive + world->size;

    size_t own = (size_t)s->keys * sizeof(int32_t), most = (size_t)s->most_held * sizeof(int32_t);
    size_t foreign = (size_t)s->most_received * sizeof(int32_t);
    size_t ranks = (size_t)s->range * sizeof(uint32_t);
    size_t all = arena_packed(most) + arena_packed(own) + arena_packed(foreign) + ranks;
    s->arena = arena_make(arena_need(all), s->common.pages);
    char *at = arena_take(&s->arena, all);
    s->key = (void *)at; /* to be sorted in place at the end of a verification */
    s->grouped = (void *)(at += arena_packed(most));
    s->received = (void *)(at += arena_packed(own));
    s->less = (void *)(at + arena_packed(foreign));
    arena_touch(&s->arena);
    make_keys(s);
    return s;
}

/* Run a slice. A unit of work is one ranking of all keys. */
static void slice(void *state, long units, Slice *out) {
    Is *s = state;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    s->comm = 0;
    double start = now();
    for (long round = 0; round < units; round++) {
        mark_keys(s, (int)(s->turn++ % ROUNDS) + 1);
        rank_keys(s);
    }
    double extra = s->common.extra * (double)units;
    for (; extra >= 1; extra--)
        rank_keys(s);
    if (extra > 0)
        extra_part(s, extra);
    double seconds = now() - start;
    double all_keys = (double)s->keys * s->world.size;
    one_rate(out, seconds, s->comm, all_keys * (double)units);
}

static void verify(void *state, Verified *v) {
    Is *s = state;
    long wrong[2] = {0, 0}, held;
    if (s->world.rank == 0)
        memcpy(s->key, s->original, sizeof s->original);
    mark_keys(s, 1);
    rank_keys(s); /* once before the clock starts, as published */
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

static const Kernel is_kernel = {"is", prepare, slice, verify, release};
LISTED(is_kernel)
