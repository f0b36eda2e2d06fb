/* What the wrappers of one process count into, and the moments that divide its time. */
#ifndef NEARMETAL_PROFILE_H
#define NEARMETAL_PROFILE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "levels.h"
#include "ticks.h"

/* MPI 4 has it, and so has Open MPI 5, which calls itself 3.1. */
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

enum { SECTIONS = 1 + MOST_LEVELS }; /* section 0: outside all others */

typedef struct {
    uint64_t ticks, communication; /* of the thread that initialised MPI */
    Call call[CALLS];
    Peer *peer; /* by world rank, then one for all outside the world; NULL: never entered */
} Section;

typedef struct {
    bool shared; /* by threads that call at once: MPI_THREAD_MULTIPLE */
    int rank, ranks;
    pid_t process;
    uint64_t loaded, init, running, finalize, ended; /* ticks at the begin of each part of the run */
    uint64_t loaded_nanoseconds;
    uint64_t entered; /* ticks when the current section was */
    Section *current; /* NULL before and after MPI */
    Section section[SECTIONS];
} Profile;

extern Profile profile;

/* Of each thread: calls that stand on each other (an MPI library may use its own public calls), and whether
   it is the one that initialised MPI. */
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

/* True for a call that is to be counted; each is followed by profile_leave. */
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

/* One message to a world rank; -1: outside the world. */
static inline void profile_sent(int world, uint64_t bytes) {
    Peer *peer = &profile.current->peer[world < 0 ? profile.ranks : world];
    profile_add(&peer->messages, 1);
    profile_add(&peer->bytes, bytes);
}

void profile_begin_init(void);
void profile_end_init(void);
void profile_begin_finalize(void);
void profile_end_finalize(void);
void profile_abort(void); /* what is known, before the process is ended */
void profile_level(int level);

/* As JSON into the directory named by NEARMETAL_PROFILE; report.c. */
void profile_report(bool complete);

#endif
