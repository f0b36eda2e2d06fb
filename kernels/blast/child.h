/* Runs one search in a child process, and reads its output while it runs. */
#ifndef NEARMETAL_CHILD_H
#define NEARMETAL_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "text.h"

/* A running search. pid: 0 if none runs; begin: time of its start, by now() in seconds. */
typedef struct {
    pid_t pid;
    int output;
    const char *name;
    double begin;
} Child;

/* Start a search. The child ends with this process, however that ends. */
Child child_start(const char *const *argv);

/* Append the output of the child to `printed`, waiting for at most this many milliseconds (-1: until there is
   some). Return false if the child has ended successfully. Fails if it has ended otherwise, or if its output
   is longer than an MPI message can be. */
bool child_goes_on(Child *child, Text *printed, int milliseconds);

#endif
