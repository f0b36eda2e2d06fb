/* The counters that the MPI wrappers of one process increase, and the times that divide its run. */
#ifndef NEARMETAL_PROFILE_H
#define NEARMETAL_PROFILE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "levels.h"
#include "ticks.h"

/* MPI_Isendrecv exists in MPI 4, and in Open MPI 5, which reports version 3.1. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define NM_HAS_ISENDRECV 1
#else
#define NM_HAS_ISENDRECV 0
#endif

#define CALL(Name, ...) CALL_##Name,
#define COUNTED CALL
#define MAKES CALL
#define C_ONLY CALL
enum {
#include "calls.def"
    CALLS
};
#undef CALL
#undef COUNTED
#undef MAKES
#undef C_ONLY

typedef struct {
    uint64_t count, ticks, bytes;
} Call;

typedef struct {
    uint64_t messages, bytes;
} Peer;

enum { SECTIONS = 1 + MOST_LEVELS }; /* section 0 is the time outside all others */

typedef struct {
    uint64_t ticks, communication; /* time of the thread that initialised MPI: all of it, and in MPI calls */
    Call call[CALLS];
    Peer *peer; /* by world rank, and one more for all outside the world; NULL if never entered */
} Section;

typedef struct {
    bool shared; /* several threads may call MPI at the same time (MPI_THREAD_MULTIPLE) */
    int rank, ranks;
    pid_t process;
    /* Ticks when the library was loaded, MPI_Init began and ended, and MPI_Finalize began and ended. */
    uint64_t loaded, init, running, finalize, ended;
    uint64_t loaded_nanoseconds;
    uint64_t entered; /* ticks when the current section was entered */
    Section *current; /* NULL before MPI_Init and after MPI_Finalize */
    Section section[SECTIONS];
} Profile;

extern Profile profile;

/* State of one thread. depth: number of nested MPI calls, since an MPI library may call its own public
   functions; first: whether the thread has initialised MPI. */
typedef struct {
    int depth;
    bool first;
} Thread;

extern _Thread_local Thread thread __attribute__((tls_model("initial-exec")));

static inline void profile_add(uint64_t *to, uint64_t more) {
    if (profile.shared)
        __atomic_fetch_add(to, more, __ATOMIC_RELAXED);
    else
        *to += more;
}

/* Enter an MPI call. Return whether it counts: it must be the outermost, between MPI_Init and MPI_Finalize.
   Each call is followed by profile_leave(). */
static inline bool profile_enter(void) {
    return thread.depth++ == 0 && profile.current;
}

static inline void profile_leave(int call, bool counted, uint64_t begin, uint64_t bytes) {
    thread.depth--;
    if (!counted)
        return;
    const uint64_t spent = ticks() - begin;
    Section *section = profile.current;
    profile_add(&section->call[call].count, 1);
    profile_add(&section->call[call].ticks, spent);
    if (bytes)
        profile_add(&section->call[call].bytes, bytes);
    if (thread.first)
        section->communication += spent;
}

/* Count one message to a world rank; -1 for a peer outside the world. */
static inline void profile_sent(int world, uint64_t bytes) {
    Peer *peer = &profile.current->peer[world < 0 ? profile.ranks : world];
    profile_add(&peer->messages, 1);
    profile_add(&peer->bytes, bytes);
}

void profile_begin_init(void);
void profile_end_init(void);
void profile_begin_finalize(void);
void profile_end_finalize(void);
void profile_abort(void); /* write an incomplete profile, before the process ends */
void profile_level(int level);

/* Write the profile as JSON into the directory that NEARMETAL_PROFILE names (report.c). complete: whether
   MPI_Finalize was called. */
void profile_report(bool complete);

#endif
