/* World ranks behind the ranks of communicators and windows, looked up in MPI once each. */
#ifndef NEARMETAL_MEMBERS_H
#define NEARMETAL_MEMBERS_H

#include <mpi.h>

/* Between the first call after MPI_Init and the last before MPI_Finalize. */
void members_begin(void);

/* The world rank behind a rank of comm (of its remote group, where it has one); -1: outside MPI_COMM_WORLD.
 */
int world_rank_in_comm(MPI_Comm comm, int rank);
int world_rank_in_window(MPI_Win window, int rank);

#endif
