/* The part of nm-init that starts commands for nm-box (request.h). */
#ifndef NM_START_H
#define NM_START_H

#include <stdbool.h>

/* Open the socket for requests of an instance. Return -1 on an error. */
int commands_listen(const char *label);
/* Wait until one of `count` descriptors (at most 3) is ready; ready[i] is set for each that is. A command
 * whose caller has closed the reply socket is killed. Return false on an error. */
bool commands_wait(const int *descriptors, int count, bool *ready);
/* Receive the next request, and start its command. */
void commands_start(int listener);
/* Report the wait status of a reaped child to its caller, if the child is a command. */
void commands_ended(int pid, int status);

#endif
