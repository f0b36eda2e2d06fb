/* The wrappers MPI_* for C and C++. With MPI 4 each call with a count exists twice: with int and with
 * MPI_Count. */
#include <mpi.h>
#include <stdarg.h>

#include "accounts.h"
#include "profile.h"
#include "wrap.h"

#define COUNTS_AT(array) ((Counts){(array), sizeof *(array)})
#define TYPES_AT(array) ((Types){(array), false})
#define IN_PLACE(buffer) ((buffer) == MPI_IN_PLACE)

#define NOTHING 0
#define MESSAGE account_message
#define TO_TARGET account_to_target
#define ONE_TO_TARGET(target, type, window) account_to_target(target, 1, type, window)
#define PERSISTENT(request, peer, count, type, comm) account_persistent(*(request), peer, count, type, comm)
#define STARTED(request) account_started(*(request))
#define ALL_STARTED(count, requests) all_started(count, requests)
#define FREED(request) (account_freed(*(request)), 0)
#define ONCE bytes_once
#define EACH bytes_to_each
#define COUNTS(counts, type, comm) bytes_by_counts(COUNTS_AT(counts), type, comm)
#define OF_ROOT bytes_of_root
#define OF_ROOT_TO_EACH bytes_of_root_to_each
#define OF_ROOT_BY_COUNTS(counts, type, root, comm)                                                          \
    bytes_of_root_by_counts(COUNTS_AT(counts), type, root, comm)
#define GIVEN(buffer, count, type) (IN_PLACE(buffer) ? 0 : bytes_once(count, type))
#define OWN(buffer, count, type, count_in, type_in)                                                          \
    (IN_PLACE(buffer) ? bytes_once(count_in, type_in) : bytes_once(count, type))
#define OWN_OF_COUNTS(buffer, count, type, counts_in, type_in, comm)                                         \
    (IN_PLACE(buffer) ? bytes_of_own_count(COUNTS_AT(counts_in), type_in, comm) : bytes_once(count, type))
#define TO_EACH(buffer, count, type, count_in, type_in, comm)                                                \
    (IN_PLACE(buffer) ? bytes_to_each(count_in, type_in, comm) : bytes_to_each(count, type, comm))
#define BY_COUNTS(buffer, counts, type, counts_in, type_in, comm)                                            \
    (IN_PLACE(buffer) ? COUNTS(counts_in, type_in, comm) : COUNTS(counts, type, comm))
#define BY_TYPES(buffer, counts, types, counts_in, types_in, comm)                                           \
    (IN_PLACE(buffer) ? bytes_by_types(COUNTS_AT(counts_in), TYPES_AT(types_in), comm)                       \
                      : bytes_by_types(COUNTS_AT(counts), TYPES_AT(types), comm))
#define TO_NEIGHBOURS bytes_to_neighbours
#define TO_NEIGHBOURS_BY_COUNTS(counts, type, comm)                                                          \
    bytes_to_neighbours_by_counts(COUNTS_AT(counts), type, comm)
#define TO_NEIGHBOURS_BY_TYPES(counts, types, comm)                                                          \
    bytes_to_neighbours_by_types(COUNTS_AT(counts), TYPES_AT(types), comm)

static uint64_t all_started(int count, const MPI_Request *requests) {
    uint64_t bytes = 0;
    for (int r = 0; r < count; r++)
        bytes += account_started(requests[r]);
    return bytes;
}

/* The account is taken before the call, which may free the handles that it needs, and before the clock
 * starts. */
#define WRAPPER(function, next, call, number, account, ...)                                                  \
    EXPORT int function(PARAMETERS_##number(__VA_ARGS__)) {                                                  \
        const bool counted = profile_enter();                                                                \
        const uint64_t bytes = counted ? account : 0, begin = ticks();                                       \
        const int code = next(ARGUMENTS_##number);                                                           \
        profile_leave(call, counted, begin, bytes);                                                          \
        return code;                                                                                         \
    }

/* A wrapper of a call that creates a request. The account needs the request, so it is taken after the call.
 */
#define MAKER(function, next, call, number, account, ...)                                                    \
    EXPORT int function(PARAMETERS_##number(__VA_ARGS__)) {                                                  \
        const bool counted = profile_enter();                                                                \
        const uint64_t begin = ticks();                                                                      \
        const int code = next(ARGUMENTS_##number);                                                           \
        profile_leave(call, counted, begin, 0);                                                              \
        if (counted && code == MPI_SUCCESS)                                                                  \
            account;                                                                                         \
        return code;                                                                                         \
    }

#define CALL(Name, name, number, account, ...)                                                               \
    WRAPPER(MPI_##Name, PMPI_##Name, CALL_##Name, number, account, __VA_ARGS__)
#define C_ONLY CALL
#define COUNTED CALL
#define MAKES(Name, name, number, account, ...)                                                              \
    MAKER(MPI_##Name, PMPI_##Name, CALL_##Name, number, account, __VA_ARGS__)
#define COUNT int
#define DISPLACEMENT int
#include "calls.def"
#undef CALL
#undef C_ONLY
#undef COUNTED
#undef MAKES
#undef COUNT
#undef DISPLACEMENT

#if MPI_VERSION >= 4
#define CALL(...)
#define C_ONLY CALL
#define COUNTED(Name, name, number, account, ...)                                                            \
    WRAPPER(MPI_##Name##_c, PMPI_##Name##_c, CALL_##Name, number, account, __VA_ARGS__)
#define MAKES(Name, name, number, account, ...)                                                              \
    MAKER(MPI_##Name##_c, PMPI_##Name##_c, CALL_##Name, number, account, __VA_ARGS__)
#define COUNT MPI_Count
#define DISPLACEMENT MPI_Aint
#include "calls.def"
#endif

EXPORT int MPI_Init(int *count, char ***arguments) {
    profile_begin_init();
    const int code = PMPI_Init(count, arguments);
    profile_end_init();
    return code;
}

EXPORT int MPI_Init_thread(int *count, char ***arguments, int wanted, int *given) {
    profile_begin_init();
    const int code = PMPI_Init_thread(count, arguments, wanted, given);
    profile_end_init();
    return code;
}

EXPORT int MPI_Finalize(void) {
    profile_begin_finalize();
    const int code = PMPI_Finalize();
    profile_end_finalize();
    return code;
}

EXPORT int MPI_Abort(MPI_Comm comm, int status) {
    profile_abort();
    return PMPI_Abort(comm, status);
}

EXPORT int MPI_Pcontrol(const int level, ...) {
    profile_level(level);
    return MPI_SUCCESS;
}
