/* Finds, names and ends the processes that a program leaves running when it ends. */
#ifndef NEARMETAL_LEFT_H
#define NEARMETAL_LEFT_H

#include <sys/types.h>

#include "text.h"

/* From now on, descendants whose parent ends become children of this process (PR_SET_CHILD_SUBREAPER). */
void left_adopt(void);
/* Wait until this child has ended, without reaping it. Adopted children that end meanwhile are reaped. */
void left_await(pid_t child);
/* Called when the program itself has been reaped. Give the remaining processes a moment to end, then kill
   them. Their names are added to `names` as comma-separated JSON strings. */
void left_end(Text *names);

#endif
