/* Distributes fragments to the ranks, one at a time, as ranks become free. Rank 0 distributes them, and
   searches too.

   No rank polls while it waits, since its search, or that of another rank, needs the CPU. */
#include "deal.h"

#include <stdlib.h>
#include <time.h>

#include "child.h"
#include "fail.h"
#include "world.h"

/* LOOK_MS: interval at which rank 0 checks for requests of other ranks while its own search runs. */
enum { LOOK_MS = 1, NONE = -1, FIRST = 0 /* tag of a request without results; else fragment + 1 */ };

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void await(MPI_Request request) {
    for (int done = 0;;) {
        MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done)
            return;
        nap();
    }
}

static Child start(const Search *search, int fragment) {
    char name[32];
    database_fragment(search->database, fragment, search->fragments, name);
    search->argv[search->place] = name;
    return child_start(search->argv);
}

static void note(const Searched *searched, int fragment, const Child *child, int rank) {
    searched->seconds[fragment] = now() - child->begin;
    searched->rank[fragment] = rank;
}

/* Receive the hits of a rank, and send it the number of its next fragment. Return false if no rank has sent
 * any. */
static bool serve(const Search *search, const Searched *searched, int *next, int *others) {
    MPI_Status status;
    int asked = 0, count;
    MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &asked, &status));
    if (!asked)
        return false;
    MPI(MPI_Get_count(&status, MPI_CHAR, &count));
    char *data = malloc((size_t)count + 1);
    if (!data)
        fail("out of memory");
    MPI(MPI_Recv(data, count, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE));
    if (status.MPI_TAG == FIRST)
        free(data);
    else
        searched->found[status.MPI_TAG - 1] =
            (Text){.data = data, .used = (size_t)count, .room = (size_t)count + 1};
    int given = *next < search->fragments ? (*next)++ : NONE;
    *others -= given == NONE;
    MPI(MPI_Send(&given, 1, MPI_INT, status.MPI_SOURCE, 0, MPI_COMM_WORLD));
    return true;
}

static void give_out(const Search *search, const Searched *searched, int others) {
    Child child = {0};
    for (int next = 0, own = NONE; next < search->fragments || others || child.pid;) {
        if (!child.pid && next < search->fragments)
            child = start(search, own = next++);
        bool served = serve(search, searched, &next, &others);
        if (!child.pid && !served)
            nap();
        if (child.pid && !child_goes_on(&child, &searched->found[own], served ? 0 : LOOK_MS))
            note(searched, own, &child, 0);
    }
}

static void take(const Search *search, const Searched *searched, int rank) {
    Text none = {0}, *found = &none;
    for (int fragment = NONE;;) {
        MPI_Request sent, answered;
        int next;
        MPI(MPI_Irecv(&next, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &answered));
        MPI(MPI_Isend(found->data, (int)found->used, MPI_CHAR, 0, fragment + 1, MPI_COMM_WORLD, &sent));
        await(sent);
        await(answered);
        text_free(found);
        if ((fragment = next) == NONE)
            return;
        found = &searched->found[fragment];
        Child child = start(search, fragment);
        while (child_goes_on(&child, found, -1))
            ;
        note(searched, fragment, &child, rank);
    }
}

void deal(const Search *search, const Searched *searched) {
    int rank, size;
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (rank)
        take(search, searched, rank);
    else
        give_out(search, searched, size - 1);
    MPI_Request all;
    MPI(MPI_Ibarrier(MPI_COMM_WORLD, &all)); /* until rank 0 has everything */
    await(all);
}
