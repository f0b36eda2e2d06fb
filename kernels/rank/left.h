/* Processes that a program leaves when it ends: told by name, and ended. */
#ifndef NEARMETAL_LEFT_H
#define NEARMETAL_LEFT_H

#include <sys/types.h>

#include "text.h"

/* From now on what loses its parent below this process becomes its child (PR_SET_CHILD_SUBREAPER). */
void left_adopt(void);
/* Returns when this child has ended, which is still to be waited for; takes leave of adopted ones on the way.
 */
void left_await(pid_t child);
/* The program itself has been waited for: gives the rest a moment to end, then kills it. Adds their names to
   text as JSON strings divided by commas. */
void left_end(Text *names);

#endif
