/* nm-init's other half: commands that it starts when nm-box asks for them. */
#ifndef NM_START_H
#define NM_START_H

#include <stdbool.h>

/* Opens the socket of an instance; -1 if it cannot. */
int commands_listen(const char *label);
/* Waits until one of `count` descriptors (at most 3) has something to say, or a command has lost its caller,
 * which ends the command. ready[i]: whether the i-th has. */
bool commands_wait(const int *descriptors, int count, bool *ready);
/* Starts the command of the next request. */
void commands_start(int listener);
/* Tells the caller of a command how it ended, if it is one. */
void commands_ended(int pid, int status);

#endif
