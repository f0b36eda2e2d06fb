/* The wrappers for Fortran: for mpif.h and `use mpi` (mpi_send_), and for `use mpi_f08` (mpi_send_f08_). A
   wrapper passes its arguments, which are addresses, on to the profiling name of the same binding, and reads
   integers and handles through them.

   Open MPI's Fortran bindings call PMPI_*, which bypasses the wrappers for C, so these wrappers are needed.
   MPICH's bindings call MPI_*, which the wrappers for C count; except the routines of mpi_f08 without a
   buffer, which call PMPI_* (those with a buffer end in _f08ts_). A call that passes through two wrappers
   counts once (Thread.depth). */
#include <mpi.h>

#include "accounts.h"
#include "profile.h"
#include "wrap.h"

#ifdef OPEN_MPI
extern char mpi_fortran_in_place_ __attribute__((weak)); /* Fortran's MPI_IN_PLACE is this address */
#define IN_PLACE(buffer) ((void *)(buffer) == (void *)&mpi_fortran_in_place_)
#define F08(name) pmpi_##name##_f08_
#else
#define IN_PLACE(buffer) ((buffer) == MPI_IN_PLACE)
#define F08(name) pmpir_##name##_f08_
#endif

#define INTEGER(address) (*(const MPI_Fint *)(address))
#define COMM_AT(address) MPI_Comm_f2c(INTEGER(address))
#define TYPE_AT(address) MPI_Type_f2c(INTEGER(address))
#define WINDOW_AT(address) MPI_Win_f2c(INTEGER(address))
#define REQUEST_AT(address) MPI_Request_f2c(INTEGER(address))
#define COUNTS_AT(address) ((Counts){(address), sizeof(MPI_Fint)})
#define TYPES_AT(address) ((Types){(address), true})

#define NOTHING 0
#define MESSAGE(peer, count, type, comm)                                                                     \
    account_message(INTEGER(peer), INTEGER(count), TYPE_AT(type), COMM_AT(comm))
#define TO_TARGET(target, count, type, window)                                                               \
    account_to_target(INTEGER(target), INTEGER(count), TYPE_AT(type), WINDOW_AT(window))
#define ONE_TO_TARGET(target, type, window)                                                                  \
    account_to_target(INTEGER(target), 1, TYPE_AT(type), WINDOW_AT(window))
#define PERSISTENT(request, peer, count, type, comm)                                                         \
    account_persistent(REQUEST_AT(request), INTEGER(peer), INTEGER(count), TYPE_AT(type), COMM_AT(comm))
#define STARTED(request) account_started(REQUEST_AT(request))
#define ALL_STARTED(count, requests) all_started(INTEGER(count), requests)
#define FREED(request) (account_freed(REQUEST_AT(request)), 0)
#define ONCE(count, type) bytes_once(INTEGER(count), TYPE_AT(type))
#define EACH(count, type, comm) bytes_to_each(INTEGER(count), TYPE_AT(type), COMM_AT(comm))
#define COUNTS(counts, type, comm) bytes_by_counts(COUNTS_AT(counts), TYPE_AT(type), COMM_AT(comm))
#define OF_ROOT(count, type, root, comm)                                                                     \
    bytes_of_root(INTEGER(count), TYPE_AT(type), INTEGER(root), COMM_AT(comm))
#define OF_ROOT_TO_EACH(count, type, root, comm)                                                             \
    bytes_of_root_to_each(INTEGER(count), TYPE_AT(type), INTEGER(root), COMM_AT(comm))
#define OF_ROOT_BY_COUNTS(counts, type, root, comm)                                                          \
    bytes_of_root_by_counts(COUNTS_AT(counts), TYPE_AT(type), INTEGER(root), COMM_AT(comm))
#define GIVEN(buffer, count, type) (IN_PLACE(buffer) ? 0 : ONCE(count, type))
#define OWN(buffer, count, type, count_in, type_in)                                                          \
    (IN_PLACE(buffer) ? ONCE(count_in, type_in) : ONCE(count, type))
#define OWN_OF_COUNTS(buffer, count, type, counts_in, type_in, comm)                                         \
    (IN_PLACE(buffer) ? bytes_of_own_count(COUNTS_AT(counts_in), TYPE_AT(type_in), COMM_AT(comm))            \
                      : ONCE(count, type))
#define TO_EACH(buffer, count, type, count_in, type_in, comm)                                                \
    (IN_PLACE(buffer) ? EACH(count_in, type_in, comm) : EACH(count, type, comm))
#define BY_COUNTS(buffer, counts, type, counts_in, type_in, comm)                                            \
    (IN_PLACE(buffer) ? COUNTS(counts_in, type_in, comm) : COUNTS(counts, type, comm))
#define BY_TYPES(buffer, counts, types, counts_in, types_in, comm)                                           \
    (IN_PLACE(buffer) ? bytes_by_types(COUNTS_AT(counts_in), TYPES_AT(types_in), COMM_AT(comm))              \
                      : bytes_by_types(COUNTS_AT(counts), TYPES_AT(types), COMM_AT(comm)))
#define TO_NEIGHBOURS(count, type, comm) bytes_to_neighbours(INTEGER(count), TYPE_AT(type), COMM_AT(comm))
#define TO_NEIGHBOURS_BY_COUNTS(counts, type, comm)                                                          \
    bytes_to_neighbours_by_counts(COUNTS_AT(counts), TYPE_AT(type), COMM_AT(comm))
#define TO_NEIGHBOURS_BY_TYPES(counts, types, comm)                                                          \
    bytes_to_neighbours_by_types(COUNTS_AT(counts), TYPES_AT(types), COMM_AT(comm))

static uint64_t all_started(int count, const MPI_Fint *requests) {
    uint64_t bytes = 0;
    for (int r = 0; r < count; r++)
        bytes += account_started(MPI_Request_f2c(requests[r]));
    return bytes;
}

/* The wrapped functions are weak symbols, since a program without Fortran does not have them. The last
   argument is the error code, which a program may omit with mpi_f08 (NULL). */
#define WRAPPER(function, next, call, number, account)                                                       \
    void next(ADDRESSES_##number, MPI_Fint *error) __attribute__((weak));                                    \
    EXPORT void function(ADDRESSES_##number, MPI_Fint *error);                                               \
    EXPORT void function(ADDRESSES_##number, MPI_Fint *error) {                                              \
        const bool counted = profile_enter();                                                                \
        const uint64_t bytes = counted ? account : 0, begin = ticks();                                       \
        next(ARGUMENTS_##number, error);                                                                     \
        profile_leave(call, counted, begin, bytes);                                                          \
    }

#define MAKER(function, next, call, number, account)                                                         \
    void next(ADDRESSES_##number, MPI_Fint *error) __attribute__((weak));                                    \
    EXPORT void function(ADDRESSES_##number, MPI_Fint *error);                                               \
    EXPORT void function(ADDRESSES_##number, MPI_Fint *error) {                                              \
        const bool counted = profile_enter();                                                                \
        const uint64_t begin = ticks();                                                                      \
        next(ARGUMENTS_##number, error);                                                                     \
        profile_leave(call, counted, begin, 0);                                                              \
        if (counted)                                                                                         \
            account;                                                                                         \
    }

#define WHOLE_RUN(binding, next)                                                                             \
    void next(init)(MPI_Fint *) __attribute__((weak));                                                       \
    void next(init_thread)(void *, void *, MPI_Fint *) __attribute__((weak));                                \
    void next(finalize)(MPI_Fint *) __attribute__((weak));                                                   \
    void next(abort)(void *, void *, MPI_Fint *) __attribute__((weak));                                      \
    EXPORT void binding(init)(MPI_Fint *);                                                                   \
    EXPORT void binding(init_thread)(void *, void *, MPI_Fint *);                                            \
    EXPORT void binding(finalize)(MPI_Fint *);                                                               \
    EXPORT void binding(abort)(void *, void *, MPI_Fint *);                                                  \
    EXPORT void binding(pcontrol)(const MPI_Fint *);                                                         \
    EXPORT void binding(init)(MPI_Fint * error) {                                                            \
        profile_begin_init();                                                                                \
        next(init)(error);                                                                                   \
        profile_end_init();                                                                                  \
    }                                                                                                        \
    EXPORT void binding(init_thread)(void *wanted, void *given, MPI_Fint *error) {                           \
        profile_begin_init();                                                                                \
        next(init_thread)(wanted, given, error);                                                             \
        profile_end_init();                                                                                  \
    }                                                                                                        \
    EXPORT void binding(finalize)(MPI_Fint * error) {                                                        \
        profile_begin_finalize();                                                                            \
        next(finalize)(error);                                                                               \
        profile_end_finalize();                                                                              \
    }                                                                                                        \
    EXPORT void binding(abort)(void *comm, void *status, MPI_Fint *error) {                                  \
        profile_abort();                                                                                     \
        next(abort)(comm, status, error);                                                                    \
    }                                                                                                        \
    EXPORT void binding(pcontrol)(const MPI_Fint *level) {                                                   \
        profile_level(*level);                                                                               \
    }

#define C_ONLY(...)
#define COUNTED CALL

#define OWN_F08(name) mpi_##name##_f08_
WHOLE_RUN(OWN_F08, F08)
#define CALL(Name, name, number, account, ...)                                                               \
    WRAPPER(mpi_##name##_f08_, F08(name), CALL_##Name, number, account)
#define MAKES(Name, name, number, account, ...)                                                              \
    MAKER(mpi_##name##_f08_, F08(name), CALL_##Name, number, account)
#include "calls.def"

#ifdef OPEN_MPI
#define OWN_F77(name) mpi_##name##_
#define F77(name) pmpi_##name##_
WHOLE_RUN(OWN_F77, F77)
#undef CALL
#undef MAKES
#define CALL(Name, name, number, account, ...)                                                               \
    WRAPPER(mpi_##name##_, pmpi_##name##_, CALL_##Name, number, account)
#define MAKES(Name, name, number, account, ...)                                                              \
    MAKER(mpi_##name##_, pmpi_##name##_, CALL_##Name, number, account)
#include "calls.def"
#endif
