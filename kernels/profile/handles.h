/* Values by MPI handle: found without a lock, put and taken under one. */
#ifndef NEARMETAL_HANDLES_H
#define NEARMETAL_HANDLES_H

#include <pthread.h>
#include <stdint.h>

typedef struct HandleTable HandleTable;

typedef struct {
    pthread_mutex_t lock;
    HandleTable *table; /* NULL until the first put */
    int used;           /* keys in it */
} Handles;

#define NO_HANDLES                                                                                           \
    { PTHREAD_MUTEX_INITIALIZER, NULL, 0 }

/* A handle is a pointer or an int, by the MPI. */
#define KEY(handle) ((uintptr_t)(handle))

void *handles_find(const Handles *handles, uintptr_t key);       /* NULL where there is none */
void *handles_put(Handles *handles, uintptr_t key, void *value); /* value, or what stood there already */
void *handles_take(Handles *handles, uintptr_t key);             /* what stood there, or NULL */

#endif
