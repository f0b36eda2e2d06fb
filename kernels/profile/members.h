/* Translates ranks of communicators and windows to ranks of MPI_COMM_WORLD. MPI is asked once for each
   communicator and window. */
#ifndef NEARMETAL_MEMBERS_H
#define NEARMETAL_MEMBERS_H

#include <mpi.h>

/* Prepare the translation. Called after MPI_Init; the functions below may be called until MPI_Finalize. */
void members_begin(void);

/* Return the world rank of a rank of comm (of its remote group, if it is an intercommunicator); -1 if it is
   outside MPI_COMM_WORLD. */
int world_rank_in_comm(MPI_Comm comm, int rank);
int world_rank_in_window(MPI_Win window, int rank);

#endif
