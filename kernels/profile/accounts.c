#include "accounts.h"

#include <stdlib.h>

#include "handles.h"
#include "members.h"
#include "profile.h"

typedef struct {
    int peer;
    uint64_t bytes;
} Persistent;

static Handles persistent = NO_HANDLES;

uint64_t bytes_once(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    PMPI_Type_size_x(type, &size);
    return count > 0 && size > 0 ? (uint64_t)count * (uint64_t)size : 0;
}

uint64_t account_message(int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    if (peer < 0)
        return 0;
    const uint64_t bytes = bytes_once(count, type);
    profile_sent(world_rank_in_comm(comm, peer), bytes);
    return bytes;
}

uint64_t account_to_target(int target, MPI_Count count, MPI_Datatype type, MPI_Win window) {
    if (target < 0)
        return 0;
    const uint64_t bytes = bytes_once(count, type);
    profile_sent(world_rank_in_window(window, target), bytes);
    return bytes;
}

void account_persistent(MPI_Request request, int peer, MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    if (peer < 0)
        return;
    Persistent *made = malloc(sizeof *made);
    if (!made)
        abort();
    *made = (Persistent){.peer = world_rank_in_comm(comm, peer), .bytes = bytes_once(count, type)};
    account_freed(request);
    handles_put(&persistent, KEY(request), made);
}

uint64_t account_started(MPI_Request request) {
    const Persistent *found = handles_find(&persistent, KEY(request));
    if (!found) /* a receive */
        return 0;
    profile_sent(found->peer, found->bytes);
    return found->bytes;
}

void account_freed(MPI_Request request) {
    free(handles_take(&persistent, KEY(request)));
}

/* Return the number of ranks that a collective call reaches: those of comm or, for an intercommunicator, of
   its remote group. */
static int reached(MPI_Comm comm) {
    int inter = 0, size = 0;
    PMPI_Comm_test_inter(comm, &inter);
    inter ? PMPI_Comm_remote_size(comm, &size) : PMPI_Comm_size(comm, &size);
    return size;
}

static int own_rank(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

static bool is_root(int root, MPI_Comm comm) {
    return root == MPI_ROOT || (root >= 0 && own_rank(comm) == root);
}

static MPI_Count count_at(Counts counts, int at) {
    return counts.width == sizeof(int) ? ((const int *)counts.of)[at] : ((const MPI_Count *)counts.of)[at];
}

static MPI_Datatype type_at(Types types, int at) {
    return types.fortran ? MPI_Type_f2c(((const MPI_Fint *)types.of)[at])
                         : ((const MPI_Datatype *)types.of)[at];
}

static uint64_t sum_of_counts(Counts counts, MPI_Datatype type, int ranks) {
    MPI_Count sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += count_at(counts, r);
    return bytes_once(sum, type);
}

static uint64_t sum_of_types(Counts counts, Types types, int ranks) {
    uint64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        if (count_at(counts, r) > 0)
            sum += bytes_once(count_at(counts, r), type_at(types, r));
    return sum;
}

uint64_t bytes_of_root(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return is_root(root, comm) ? bytes_once(count, type) : 0;
}

uint64_t bytes_to_each(MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    return (uint64_t)reached(comm) * bytes_once(count, type);
}

uint64_t bytes_of_root_to_each(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return is_root(root, comm) ? bytes_to_each(count, type, comm) : 0;
}

uint64_t bytes_by_counts(Counts counts, MPI_Datatype type, MPI_Comm comm) {
    return sum_of_counts(counts, type, reached(comm));
}

uint64_t bytes_of_root_by_counts(Counts counts, MPI_Datatype type, int root, MPI_Comm comm) {
    return is_root(root, comm) ? bytes_by_counts(counts, type, comm) : 0;
}

uint64_t bytes_of_own_count(Counts counts, MPI_Datatype type, MPI_Comm comm) {
    return bytes_once(count_at(counts, own_rank(comm)), type);
}

uint64_t bytes_by_types(Counts counts, Types types, MPI_Comm comm) {
    return sum_of_types(counts, types, reached(comm));
}

/* Return the number of neighbours that this rank sends to in the topology of comm. */
static int neighbours(MPI_Comm comm) {
    int topology = MPI_UNDEFINED, count = 0, dimensions = 0, in = 0, out = 0, weighted = 0;
    PMPI_Topo_test(comm, &topology);
    if (topology == MPI_CART) {
        PMPI_Cartdim_get(comm, &dimensions);
        count = 2 * dimensions;
    } else if (topology == MPI_GRAPH) {
        PMPI_Graph_neighbors_count(comm, own_rank(comm), &count);
    } else if (topology == MPI_DIST_GRAPH) {
        PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
        count = out;
    }
    return count;
}

uint64_t bytes_to_neighbours(MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    return (uint64_t)neighbours(comm) * bytes_once(count, type);
}

uint64_t bytes_to_neighbours_by_counts(Counts counts, MPI_Datatype type, MPI_Comm comm) {
    return sum_of_counts(counts, type, neighbours(comm));
}

uint64_t bytes_to_neighbours_by_types(Counts counts, Types types, MPI_Comm comm) {
    return sum_of_types(counts, types, neighbours(comm));
}
