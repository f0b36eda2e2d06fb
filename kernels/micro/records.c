/* The kernel `records`: writes like an ocean model (Youseff et al. 2006: 33 MB of output in pieces of 200 B).
   It writes short records, with one system call each, into files of about 1 MB in the storage of the rank's
   instance. Each slice ends with a checkpoint, which is forced to the medium (fsync) and replaces the
   previous one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "kernel.h"

enum { BLOCK = 1 << 20 };
/* An odd factor, so that all its multiples modulo 2^64 differ. */
static const uint64_t factor = 0x9e3779b97f4a7c15;

typedef struct {
    World world;
    Common common;
    Arena arena;
    long record, per_file, files;
    long checkpoint;
    double owed; /* records of extra work that were not written yet */
    char directory[PATH_MAX - 32];
    int file;                     /* -1: none is open */
    long number, position;        /* of the file, of the record in it */
    uint64_t sequence;            /* sequence number of the next record, written at its beginning */
    char *content, *block, *back; /* contents of a file, of a checkpoint, and data that is read again */
} Records;

static void path_of(const Records *s, char *path, const char *kind, long number) {
    if (snprintf(path, PATH_MAX, "%s/%s.%ld", s->directory, kind, number) >= PATH_MAX)
        fail("records: %s: path too long", s->directory);
}

static void write_all(int file, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(file, data, size);
        if (count < 0 && errno != EINTR)
            fail("records: write: %s", strerror(errno));
        data += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
}

static int open_new(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        fail("records: %s: %s", path, strerror(errno));
    return file;
}

static void close_file(Records *s) {
    if (s->file >= 0 && close(s->file))
        fail("records: close: %s", strerror(errno));
    s->file = -1;
}

static void next_file(Records *s) {
    char path[PATH_MAX];
    close_file(s);
    s->number = (s->number + 1) % s->files;
    s->position = 0;
    path_of(s, path, "output", s->number);
    s->file = open_new(path);
}

static void write_records(Records *s, long count) {
    for (; count; count--) {
        if (s->file < 0 || s->position == s->per_file)
            next_file(s);
        char *record = s->content + s->position++ * s->record;
        memcpy(record, &s->sequence, sizeof s->sequence);
        s->sequence++;
        write_all(s->file, record, (size_t)s->record);
    }
}

/* Write a checkpoint under a temporary name and rename it, as a model does that may be killed at any moment.
 */
static void write_checkpoint(Records *s) {
    char half[PATH_MAX], whole[PATH_MAX];
    path_of(s, half, "half", 0);
    path_of(s, whole, "checkpoint", 0);
    int file = open_new(half);
    for (long done = 0; done < s->checkpoint; done += BLOCK) {
        long left = s->checkpoint - done;
        write_all(file, s->block, (size_t)(left < BLOCK ? left : BLOCK));
    }
    if (fsync(file) || close(file) || rename(half, whole))
        fail("records: checkpoint: %s", strerror(errno));
}

/* Fill memory with words that all differ. */
static void fill(char *data, long size) {
    for (long at = 0; at < size; at++)
        data[at] = (char)(factor * (uint64_t)(at / 8 + 1) >> 8 * (at % 8));
}

static void make_directory(Records *s) {
    const char *storage = getenv("NEARMETAL_STORAGE");
    if (!storage || !*storage)
        fail("records: no storage to write to (storage: of the environment)");
    if (snprintf(s->directory, sizeof s->directory, "%s/records-XXXXXX", storage) >= (int)sizeof s->directory)
        fail("records: %s: path too long", storage);
    if (!mkdtemp(s->directory))
        fail("records: %s: %s", s->directory, strerror(errno));
}

static void *prepare(Spec *spec, const World *world) {
    Records *s = calloc(1, sizeof *s);
    if (!s)
        fail("out of memory");
    s->world = *world;
    s->common = spec_single(spec);
    s->record = spec_integer(spec, "record", 200, 16, 1L << 20);
    long bytes = spec_integer(spec, "file", 1 << 20, 16, 1L << 40);
    s->files = spec_integer(spec, "files", 32, 1, 1L << 20);
    s->checkpoint = spec_integer(spec, "checkpoint", 4 << 20, 1, 1L << 40);
    if (s->record > bytes)
        fail("records: a record of %ld bytes does not fit into a file of %ld", s->record, bytes);
    s->per_file = bytes / s->record;
    s->file = -1;
    s->number = -1;
    size_t size = (size_t)(s->per_file * s->record);
    s->arena = arena_make(arena_need(size) + 2 * arena_need(BLOCK), s->common.pages);
    s->content = arena_take(&s->arena, size);
    s->block = arena_take(&s->arena, BLOCK);
    s->back = arena_take(&s->arena, BLOCK);
    arena_touch(&s->arena);
    fill(s->content, (long)size);
    fill(s->block, BLOCK);
    make_directory(s);
    return s;
}

/* Run a slice. A unit of work is one record of each rank. */
static void slice(void *state, long units, Slice *out) {
    Records *s = state;
    long count = units + take_whole(&s->owed, s->common.extra * (double)units);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    write_records(s, count);
    double written = now();
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double again = now();
    write_checkpoint(s);
    out->count = 2;
    out->part[0] =
        (Part){.metric = "records", .seconds = written - start, .work = (double)units * s->world.size};
    out->part[1] = (Part){.metric = "checkpoint", .seconds = now() - again, .work = 1};
}

static void read_all(int file, char *data, size_t size, const char *path) {
    for (size_t done = 0; done < size;) {
        ssize_t count = read(file, data + done, size - done);
        if (count == 0 || (count < 0 && errno != EINTR))
            fail("records: %s: %s", path, count ? strerror(errno) : "it ends too early");
        done += count > 0 ? (size_t)count : 0;
    }
}

static int open_back(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail("records: %s: %s", path, strerror(errno));
    return file;
}

/* Return the number of records of a file that are not as they were written. first: sequence number of its
 * first record. */
static long wrong_records(Records *s, long number, uint64_t first) {
    char path[PATH_MAX];
    path_of(s, path, "output", number);
    int file = open_back(path);
    long wrong = 0;
    for (long at = 0; at < s->per_file; at++) {
        char *record = s->content + at * s->record;
        uint64_t sequence = first + (uint64_t)at;
        memcpy(record, &sequence, sizeof sequence);
        read_all(file, s->back, (size_t)s->record, path);
        wrong += memcmp(record, s->back, (size_t)s->record) != 0;
    }
    close(file);
    return wrong;
}

static long wrong_blocks(Records *s) {
    char path[PATH_MAX];
    path_of(s, path, "checkpoint", 0);
    int file = open_back(path);
    long wrong = 0;
    for (long done = 0; done < s->checkpoint; done += BLOCK) {
        size_t size = (size_t)(s->checkpoint - done < BLOCK ? s->checkpoint - done : BLOCK);
        read_all(file, s->back, size, path);
        wrong += memcmp(s->block, s->back, size) != 0;
    }
    close(file);
    return wrong;
}

/* Change one byte of the last record of file 0. */
static void spoil(const Records *s) {
    char path[PATH_MAX], byte = 0;
    off_t at = s->per_file * s->record - 1;
    path_of(s, path, "output", 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || pread(file, &byte, 1, at) != 1)
        fail("records: %s: %s", path, strerror(errno));
    byte ^= 1;
    if (pwrite(file, &byte, 1, at) != 1 || close(file))
        fail("records: %s: %s", path, strerror(errno));
}

/* Write all files once and a checkpoint, and read them again. */
static void verify(void *state, Verified *v) {
    Records *s = state;
    long whole = s->files * s->per_file;
    close_file(s);
    s->number = -1;
    uint64_t first = s->sequence;
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    double start = now();
    write_records(s, whole);
    close_file(s);
    write_checkpoint(s);
    v->seconds = now() - start;
    v->work = (double)whole * s->world.size;
    if (s->common.corrupt && s->world.rank == s->world.size - 1)
        spoil(s);
    long wrong[2] = {0, wrong_blocks(s)};
    for (long number = 0; number < s->files; number++)
        wrong[0] += wrong_records(s, number, first + (uint64_t)(number * s->per_file));
    MPI(MPI_Allreduce(MPI_IN_PLACE, wrong, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    v->ok = wrong[0] == 0 && wrong[1] == 0;
    text_add(&v->expected, "\"wrong_records\":0,\"wrong_blocks\":0");
    text_add(&v->found, "\"wrong_records\":%ld,\"wrong_blocks\":%ld", wrong[0], wrong[1]);
}

static void release(void *state) {
    Records *s = state;
    char path[PATH_MAX];
    close_file(s);
    for (long number = 0; number < s->files; number++) {
        path_of(s, path, "output", number);
        unlink(path);
    }
    path_of(s, path, "checkpoint", 0);
    unlink(path);
    rmdir(s->directory);
    arena_free(&s->arena);
    free(s);
}

static const Kernel records_kernel = {"records", prepare, slice, verify, release};
LISTED(records_kernel)
