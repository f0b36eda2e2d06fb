/* The simplest STREAM triad and MPI ping-pong, with which nm-micro is compared.
   plain triad ELEMENTS SWEEPS | plain pingpong BYTES TRIPS: prints the seconds
   of several repetitions, one per line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { REPETITIONS = 15 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double *array(long n) {
  size_t huge = 2 << 20,
         bytes = ((size_t)n * sizeof(double) + huge - 1) / huge * huge;
  double *p = aligned_alloc(huge, bytes);
  if (!p)
    exit(1);
  madvise(p, bytes, MADV_HUGEPAGE);
  for (long i = 0; i < n; i++)
    p[i] = 1;
  return p;
}

int main(int count, char **word) {
  MPI_Init(&count, &word);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (count != 4)
    return 1;
  long n = atol(word[2]), times = atol(word[3]);
  if (strcmp(word[1], "triad") == 0) {
    n /= size;
    double *restrict a = array(n), *restrict b = array(n),
                     *restrict c = array(n);
    for (int r = 0; r < REPETITIONS; r++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double begin = now(), most, mine;
      for (long t = 0; t < times; t++) {
        for (long i = 0; i < n; i++)
          a[i] = b[i] + 0.5 * c[i];
        __asm__ volatile("" ::: "memory");
      }
      mine = now() - begin;
      MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0)
        printf("%.9f\n", most);
    }
  } else {
    char *buffer = calloc(1, (size_t)n + 1);
    for (int r = 0; r < REPETITIONS; r++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double begin = now();
      for (long t = 0; t < times; t++) {
        if (rank == 0) {
          MPI_Send(buffer, (int)n, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
          MPI_Recv(buffer, (int)n, MPI_CHAR, 1, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
        } else if (rank == 1) {
          MPI_Recv(buffer, (int)n, MPI_CHAR, 0, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
          MPI_Send(buffer, (int)n, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
      }
      if (rank == 0)
        printf("%.9f\n", now() - begin);
    }
  }
  MPI_Finalize();
  return 0;
}
