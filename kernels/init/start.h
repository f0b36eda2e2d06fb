/* The part of nm-init that starts commands for nm-box (request.h). */
#ifndef NM_START_H
#define NM_START_H

#include <stdbool.h>

/* Open the socket for requests, which has a name of request.h. Return -1 on an error. */
int commands_listen(const char *name);
/* Wait until one of `count` descriptors (at most 3) or a connection is ready; ready[i] is set for each
 * descriptor that is. Return false on an error. */
bool commands_wait(const int *descriptors, int count, bool *ready);
/* Accept the next connection, unless it belongs to another user. */
void commands_accept(int listener);
/* Start the commands whose requests have arrived, and kill those whose callers have closed the connection. */
void commands_serve(void);
/* Report the wait status of a reaped child to its caller, if the child is a command. */
void commands_ended(int pid, int status);

#endif
