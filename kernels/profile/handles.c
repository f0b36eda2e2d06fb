/* A hash table with open addressing. When a value is taken, its key stays with the value NULL, since MPI
   libraries reuse handles. A reader may still use a table that a writer has replaced, so old tables are kept
   until the process ends. */
#include "handles.h"

#include <stdlib.h>

typedef struct {
    uintptr_t key; /* 0: free; no MPI uses 0 as a valid handle */
    void *value;
} Entry;

struct HandleTable {
    HandleTable *older; /* the replaced table; kept reachable, so that leak checkers do not report it */
    uintptr_t mask;
    Entry entry[];
};

enum { FIRST_SIZE = 64 };

/* Return the entry of a key, or the free entry where it would be put. */
static Entry *entry_of(HandleTable *table, uintptr_t key) {
    const uint64_t golden = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio; the low bits are alignment alone */
    for (uintptr_t at = (uintptr_t)((uint64_t)key * golden >> 20);; at++) {
        Entry *entry = &table->entry[at & table->mask];
        const uintptr_t found = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        if (found == key || found == 0)
            return entry;
    }
}

void *handles_find(const Handles *handles, uintptr_t key) {
    HandleTable *table = __atomic_load_n(&handles->table, __ATOMIC_ACQUIRE);
    return table ? __atomic_load_n(&entry_of(table, key)->value, __ATOMIC_RELAXED) : NULL;
}

static void put(Handles *handles, HandleTable *table, uintptr_t key, void *value) {
    Entry *entry = entry_of(table, key);
    __atomic_store_n(&entry->value, value, __ATOMIC_RELAXED);
    handles->used += entry->key == 0;
    __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
}

/* Make room for one more key: at most half of the table is used. A new table gets only keys with a value. */
static void make_room(Handles *handles) {
    HandleTable *old = handles->table;
    if (old && 2 * (uintptr_t)handles->used <= old->mask)
        return;
    uintptr_t live = 0;
    for (uintptr_t at = 0; old && at <= old->mask; at++)
        live += old->entry[at].value != NULL;
    const uintptr_t size = !old ? FIRST_SIZE : 4 * live > old->mask ? 2 * (old->mask + 1) : old->mask + 1;
    HandleTable *table = calloc(1, sizeof *table + size * sizeof *table->entry);
    if (!table)
        abort();
    table->older = old;
    table->mask = size - 1;
    handles->used = 0;
    for (uintptr_t at = 0; old && at <= old->mask; at++)
        if (old->entry[at].value)
            put(handles, table, old->entry[at].key, old->entry[at].value);
    __atomic_store_n(&handles->table, table, __ATOMIC_RELEASE);
}

void *handles_put(Handles *handles, uintptr_t key, void *value) {
    pthread_mutex_lock(&handles->lock);
    void *standing = handles_find(handles, key);
    if (!standing) {
        make_room(handles);
        put(handles, handles->table, key, value);
    }
    pthread_mutex_unlock(&handles->lock);
    return standing ? standing : value;
}

void *handles_take(Handles *handles, uintptr_t key) {
    pthread_mutex_lock(&handles->lock);
    void *value = handles_find(handles, key);
    if (value)
        put(handles, handles->table, key, NULL);
    pthread_mutex_unlock(&handles->lock);
    return value;
}
