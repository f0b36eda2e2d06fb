/* What a call hands over: bytes that this rank gives to MPI for others, and the peer they are for. The words
   of calls.def in C; wrap_fortran.c has them for arguments that are all pointers. */
#ifndef NEARMETAL_ACCOUNTS_H
#define NEARMETAL_ACCOUNTS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counts as they stand in memory: int, MPI_Count or MPI_Fint. */
typedef struct {
    const void *of;
    size_t width;
} Counts;

/* Datatypes as they stand in memory: handles of C or of Fortran. */
typedef struct {
    const void *of;
    bool fortran;
} Types;

/* One message; its bytes. Nothing to MPI_PROC_NULL. */
uint64_t account_message(int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t account_to_target(int target, MPI_Count count, MPI_Datatype type, MPI_Win window);

/* Messages of persistent requests, which go at every start. */
void account_persistent(MPI_Request request, int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t account_started(MPI_Request request);
void account_freed(MPI_Request request);

/* Bytes that a rank gives to a collective call. */
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
