/* Accounts of MPI calls: how many bytes this rank hands to MPI for other ranks, and to which peer. calls.def
   uses these functions by names that wrap_c.c defines for C, and wrap_fortran.c for Fortran, where all
   arguments are pointers. */
#ifndef NEARMETAL_ACCOUNTS_H
#define NEARMETAL_ACCOUNTS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array of counts in memory. width: bytes of one count, which is an int, an MPI_Count or an MPI_Fint. */
typedef struct {
    const void *of;
    size_t width;
} Counts;

/* An array of datatypes in memory: handles of C or of Fortran. */
typedef struct {
    const void *of;
    bool fortran;
} Types;

/* Count one message to a peer, and return its bytes. A message to MPI_PROC_NULL does not count. */
uint64_t account_message(int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t account_to_target(int target, MPI_Count count, MPI_Datatype type, MPI_Win window);

/* Persistent requests: account_persistent() notes the message of a new request, account_started() counts it
   at every start and returns its bytes, account_freed() forgets it. */
void account_persistent(MPI_Request request, int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t account_started(MPI_Request request);
void account_freed(MPI_Request request);

/* Return the bytes that this rank hands to a collective call; the names say by which rule. */
uint64_t bytes_once(MPI_Count count, MPI_Datatype type);
uint64_t bytes_of_root(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
uint64_t bytes_to_each(MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t bytes_of_root_to_each(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
uint64_t bytes_by_counts(Counts counts, MPI_Datatype type, MPI_Comm comm);
uint64_t bytes_of_root_by_counts(Counts counts, MPI_Datatype type, int root, MPI_Comm comm);
uint64_t bytes_of_own_count(Counts counts, MPI_Datatype type, MPI_Comm comm);
uint64_t bytes_by_types(Counts counts, Types types, MPI_Comm comm);
uint64_t bytes_to_neighbours(MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t bytes_to_neighbours_by_counts(Counts counts, MPI_Datatype type, MPI_Comm comm);
uint64_t bytes_to_neighbours_by_types(Counts counts, Types types, MPI_Comm comm);

#endif
