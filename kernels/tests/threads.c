/* For tests of the profile: several threads send messages to their own rank at the same time. Each thread has
   its own communicator. All threads use theirs first at the same moment, so that the lookups of members.c
   coincide. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, MESSAGES = 2000 };

static MPI_Comm comms[THREADS], common;
static int rank;

static void *talk(void *own) {
    MPI_Comm comm = *(MPI_Comm *)own;
    double out = 1, in = 0;
    int tag = (int)((MPI_Comm *)own - comms);
    for (int i = 0; i < MESSAGES; i++)
        MPI_Sendrecv(&out, 1, MPI_DOUBLE, rank, tag, &in, 1, MPI_DOUBLE, rank, tag, i % 2 ? comm : common,
                     MPI_STATUS_IGNORE);
    return NULL;
}

int main(int count, char **arguments) {
    int level;
    pthread_t threads[THREADS];
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "this MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &common);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    for (int t = 1; t < THREADS; t++)
        pthread_create(&threads[t], NULL, talk, &comms[t]);
    talk(&comms[0]);
    for (int t = 1; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comms[t]);
    MPI_Comm_free(&common);
    return MPI_Finalize();
}
