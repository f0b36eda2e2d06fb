/* Known traffic for tests of the profile, which repeat every number of this file. traffic_mpi.f90 and
   traffic_f08.f90 do the same in Fortran. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, next, previous;

static void blocking(void) {
    double out[10] = {0}, in[10];
    for (int i = 0; i < 5; i++)
        MPI_Sendrecv(out, 10, MPI_DOUBLE, next, 0, in, 10, MPI_DOUBLE, previous, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    MPI_Send(out, 10, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
}

static void non_blocking(void) {
    int out[7] = {0}, in[7];
    MPI_Request requests[2];
    for (int i = 0; i < 3; i++) {
        MPI_Irecv(in, 7, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, 7, MPI_INT, previous, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void persistent(void) {
    int out[4] = {0}, in[4];
    MPI_Request requests[2];
    MPI_Recv_init(in, 4, MPI_INT, previous, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out, 4, MPI_INT, next, 2, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 6; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* In a communicator with the ranks in reverse order, rank 0 is the last of the world and sends to the last
 * but one. */
static void other_order(void) {
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    char text[100] = "";
    for (int i = 0; i < 2; i++) {
        if (rank == size - 1)
            MPI_Send(text, 100, MPI_CHAR, 1, 3, reversed);
        if (rank == size - 2)
            MPI_Recv(text, 100, MPI_CHAR, 0, 3, reversed, MPI_STATUS_IGNORE);
    }
    double memory[5] = {0}, out[5] = {0};
    MPI_Win window;
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, reversed, &window);
    MPI_Win_fence(0, window);
    if (rank == 0)
        MPI_Put(out, 5, MPI_DOUBLE, 0, 0, 5, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Comm_free(&reversed);
}

static void collective(void) {
    double x = 1, sum;
    for (int i = 0; i < 4; i++)
        MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int three[3] = {0}, *out = calloc(2 * (size_t)size, sizeof *out),
        *in = calloc(2 * (size_t)size, sizeof *in);
    MPI_Bcast(three, 3, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Alltoall(out, 2, MPI_INT, in, 2, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_INT, MPI_COMM_WORLD);
    free(out);
    free(in);
    MPI_Pcontrol(3);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Pcontrol(1);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    blocking();
    non_blocking();
    persistent();
    other_order();
    collective();
    if (count > 1 && strcmp(arguments[1], "exit") == 0)
        exit(7);
    if (count > 1 && strcmp(arguments[1], "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 8);
    return MPI_Finalize();
}
