/* A map from MPI handles to pointers. Lookups need no lock; insertion and removal take one. */
#ifndef NEARMETAL_HANDLES_H
#define NEARMETAL_HANDLES_H

#include <pthread.h>
#include <stdint.h>

typedef struct HandleTable HandleTable;

typedef struct {
    pthread_mutex_t lock;
    HandleTable *table; /* NULL until the first value is put */
    int used;           /* number of keys in it, including those without a value */
} Handles;

#define NO_HANDLES                                                                                           \
    { PTHREAD_MUTEX_INITIALIZER, NULL, 0 }

/* Convert a handle to a key. A handle is a pointer or an int, depending on the MPI library. */
#define KEY(handle) ((uintptr_t)(handle))

void *handles_find(const Handles *handles, uintptr_t key); /* return the value, or NULL */
/* Put a value, unless the key has one already. Return the value that the key now has. */
void *handles_put(Handles *handles, uintptr_t key, void *value);
void *handles_take(Handles *handles, uintptr_t key); /* remove and return the value, or NULL */

#endif
