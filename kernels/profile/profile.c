/* The state of the profile in one process: when MPI began and ended, and which section is being counted. */
#include "profile.h"

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "members.h"

bool ticks_of_processor;
Profile profile;
_Thread_local Thread thread;

static bool reported;

/* Write the profile, once, and not from a forked child, which has a copy of this state. */
static void report_once(bool complete) {
    if (getpid() == profile.process && !__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED))
        profile_report(complete);
}

__attribute__((constructor)) static void loaded(void) {
    ticks_choose();
    profile.loaded = ticks();
    profile.loaded_nanoseconds = nanoseconds();
}

/* Write the profile of a program that ends without MPI_Finalize. */
__attribute__((destructor)) static void unloaded(void) {
    profile_abort();
}

static void enter_section(Section *section) {
    if (!section->peer)
        section->peer = calloc((size_t)profile.ranks + 1, sizeof *section->peer);
    if (!section->peer)
        abort();
    const uint64_t now = ticks();
    if (profile.current)
        profile.current->ticks += now - profile.entered;
    profile.entered = now;
    profile.current = section;
}

void profile_begin_init(void) {
    if (thread.depth++ == 0)
        profile.init = ticks();
}

void profile_end_init(void) {
    const uint64_t end = ticks();
    if (--thread.depth > 0)
        return;
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    PMPI_Comm_rank(MPI_COMM_WORLD, &profile.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &profile.ranks);
    members_begin();
    profile.shared = level == MPI_THREAD_MULTIPLE;
    thread.first = true;
    profile.process = getpid();
    profile.running = end;
    enter_section(&profile.section[0]);
    profile.entered = end; /* the preparations of the profile do not count as a gap */
}

static void leave_sections(void) {
    profile.finalize = ticks();
    profile.current->ticks += profile.finalize - profile.entered;
    profile.current = NULL;
}

void profile_begin_finalize(void) {
    if (thread.depth++ == 0 && profile.current)
        leave_sections();
}

void profile_end_finalize(void) {
    profile.ended = ticks();
    if (--thread.depth == 0)
        report_once(true);
}

void profile_abort(void) {
    if (!profile.current)
        return;
    leave_sections();
    profile.ended = profile.finalize;
    report_once(false);
}

void profile_level(int level) {
    if (!profile.current || !thread.first || level >= FIRST_LEVEL + MOST_LEVELS)
        return;
    enter_section(&profile.section[level < FIRST_LEVEL ? 0 : level - FIRST_LEVEL + 1]);
}
