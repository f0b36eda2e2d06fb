/* One search in a child process: what it prints is read while it runs. */
#ifndef NEARMETAL_CHILD_H
#define NEARMETAL_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "text.h"

/* pid: 0 where none runs; begin: seconds of now(). */
typedef struct {
    pid_t pid;
    int output;
    const char *name;
    double begin;
} Child;

/* It ends with this process, however that ends. */
Child child_start(const char *const *argv);

/* Takes what it has printed, waiting up to so many milliseconds (-1: until there is something). False when it
   has ended, and well: any other end, and more than a message of MPI can hold, fails. */
bool child_goes_on(Child *child, Text *printed, int milliseconds);

#endif
