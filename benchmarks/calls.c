/* calls THREADS(0|1): prints the seconds per call of three MPI calls that do
   little, one number per line: MPI_Iprobe, MPI_Sendrecv of an empty message
   with the own rank in MPI_COMM_WORLD, and the same in another communicator.
   THREADS: whether MPI is initialised with MPI_THREAD_MULTIPLE. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 2000, REPETITIONS = 500 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void probe(MPI_Comm comm, int rank) {
  int flag;
  MPI_Iprobe(rank, 0, comm, &flag, MPI_STATUS_IGNORE);
}

static void send_to_self(MPI_Comm comm, int rank) {
  MPI_Sendrecv(NULL, 0, MPI_BYTE, rank, 0, NULL, 0, MPI_BYTE, rank, 0, comm,
               MPI_STATUS_IGNORE);
}

/* Print the minimum over several repetitions, since other processes can only
 * add time. */
static void time_calls(void (*call)(MPI_Comm, int), MPI_Comm comm, int rank) {
  double least = 1e9;
  for (int r = 0; r < REPETITIONS; r++) {
    double begin = now();
    for (int c = 0; c < CALLS; c++)
      call(comm, rank);
    double each = (now() - begin) / CALLS;
    least = each < least ? each : least;
  }
  printf("%.12g\n", least);
}

int main(int count, char **arguments) {
  int level, rank;
  if (count != 2)
    return 1;
  MPI_Init_thread(&count, &arguments,
                  atoi(arguments[1]) ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                  &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  time_calls(probe, MPI_COMM_WORLD, rank);
  time_calls(send_to_self, MPI_COMM_WORLD, rank);
  time_calls(send_to_self, other, rank);
  MPI_Comm_free(&other);
  return MPI_Finalize();
}
