/* nm-job BYTES RECORD HOT RATE: an MPI program that verifies whether it continues unchanged after all of its
 * processes have been checkpointed and restored. Each rank does the same as nm-keeper, with its own record
 * RECORD.RANK. In every step it also exchanges messages with the previous and the next rank, and verifies
 * them. Every AGREE steps all ranks sum up their values and verify the sum. */
#include "fail.h"
#include "keep.h"
#include "values.h"

#include <mpi.h>
#include <stdio.h>

enum { AGREE = 64, PATH = 4096, TAG = 1 };

static void leave(void) {
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void exchange(struct values *values, uint64_t step) {
    uint64_t out[VALUES_WORDS], in[VALUES_WORDS];
    const int ranks = (int)values->ranks, rank = (int)values->rank;
    values_fill(values, step, out);
    MPI_Sendrecv(out, VALUES_WORDS, MPI_UINT64_T, (rank + 1) % ranks, TAG, in, VALUES_WORDS, MPI_UINT64_T,
                 (rank + ranks - 1) % ranks, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    values_take(values, step, in);
}

static void agree(const struct values *values) {
    uint64_t sum = 0, expected = 0;
    MPI_Allreduce(&values->of[values->rank], &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (uint64_t rank = 0; rank < values->ranks; rank++)
        expected += values->of[rank];
    if (sum != expected)
        fail("the sum over all ranks is wrong");
}

int main(int argc, char **argv) {
    int rank, ranks;
    char path[PATH];
    struct keeper keeper;
    struct values values;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fail_as(rank, leave);
    if (argc != 5)
        fail("usage: nm-job BYTES RECORD HOT RATE");
    if (snprintf(path, sizeof path, "%s.%d", argv[2], rank) >= (int)sizeof path)
        fail("path too long");
    values_begin(&values, (uint64_t)rank, (uint64_t)ranks);
    keep_begin(&keeper, keep_number(argv[1]), path, keep_number(argv[3]), keep_number(argv[4]));
    for (;;) {
        keep_memory(&keeper);
        exchange(&values, keeper.record.steps);
        if (keeper.record.steps % AGREE == 0)
            agree(&values);
        keep_step(&keeper);
    }
}
