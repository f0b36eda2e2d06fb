#include "members.h"

#include <stdbool.h>
#include <stdlib.h>

#include "handles.h"

typedef struct {
    int count;
    int world[]; /* MPI_UNDEFINED: outside the world */
} Members;

static Handles of_comm = NO_HANDLES, of_window = NO_HANDLES;
static MPI_Group world_group;
/* Keys of attributes whose delete callbacks report that a handle is freed, from any language. */
static int comm_key = MPI_KEYVAL_INVALID, window_key = MPI_KEYVAL_INVALID;

static int comm_freed(MPI_Comm comm, int key, void *value, void *extra) {
    (void)key, (void)value, (void)extra;
    free(handles_take(&of_comm, KEY(comm)));
    return MPI_SUCCESS;
}

static int window_freed(MPI_Win window, int key, void *value, void *extra) {
    (void)key, (void)value, (void)extra;
    free(handles_take(&of_window, KEY(window)));
    return MPI_SUCCESS;
}

/* Like MPI_COMM_NULL_COPY_FN: a duplicated communicator does not inherit the attribute, but gets its own
 * entry. */
static int comm_not_copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static int window_not_copied(MPI_Win window, int key, void *extra, void *in, void *out, int *flag) {
    (void)window, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

void members_begin(void) {
    PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
    PMPI_Comm_create_keyval(comm_not_copied, comm_freed, &comm_key, NULL);
    PMPI_Win_create_keyval(window_not_copied, window_freed, &window_key, NULL);
}

/* Return the world ranks of a group, and free the group. */
static Members *members_of(MPI_Group group) {
    int count = 0;
    PMPI_Group_size(group, &count);
    Members *members = malloc(sizeof *members + (size_t)count * sizeof *members->world);
    int *ranks = malloc((size_t)count * sizeof *ranks + 1);
    if (!members || !ranks)
        abort();
    members->count = count;
    for (int r = 0; r < count; r++)
        ranks[r] = r;
    PMPI_Group_translate_ranks(group, count, ranks, world_group, members->world);
    free(ranks);
    PMPI_Group_free(&group);
    return members;
}

static int world_rank(const Members *members, int rank) {
    const int world = rank < members->count ? members->world[rank] : MPI_UNDEFINED;
    return world == MPI_UNDEFINED ? -1 : world;
}

/* Store the members of a handle, and return the stored ones. If another thread has stored them first, `made`
   is freed and *first is false. Only the first thread may set the attribute: setting it again would call the
   delete callback, which frees the members that other threads use. */
static const Members *kept(Handles *handles, uintptr_t key, Members *made, bool *first) {
    const Members *standing = handles_put(handles, key, made);
    *first = standing == made;
    if (!*first)
        free(made);
    return standing;
}

static const Members *members_of_comm(MPI_Comm comm) {
    int inter = 0;
    MPI_Group group;
    PMPI_Comm_test_inter(comm, &inter);
    inter ? PMPI_Comm_remote_group(comm, &group) : PMPI_Comm_group(comm, &group);
    bool first;
    const Members *members = kept(&of_comm, KEY(comm), members_of(group), &first);
    if (first)
        PMPI_Comm_set_attr(comm, comm_key, NULL);
    return members;
}

static const Members *members_of_window(MPI_Win window) {
    MPI_Group group;
    bool first;
    PMPI_Win_get_group(window, &group);
    const Members *members = kept(&of_window, KEY(window), members_of(group), &first);
    if (first)
        PMPI_Win_set_attr(window, window_key, NULL);
    return members;
}

int world_rank_in_comm(MPI_Comm comm, int rank) {
    if (comm == MPI_COMM_WORLD)
        return rank;
    const Members *members = handles_find(&of_comm, KEY(comm));
    return world_rank(members ? members : members_of_comm(comm), rank);
}

int world_rank_in_window(MPI_Win window, int rank) {
    const Members *members = handles_find(&of_window, KEY(window));
    return world_rank(members ? members : members_of_window(window), rank);
}
