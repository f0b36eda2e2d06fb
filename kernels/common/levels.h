/* Sections of a profile. MPI_Pcontrol(level) with a level of at least FIRST_LEVEL begins the section of this
   level; level 1 returns to the time outside all sections. The MPI standard gives other meanings to levels 0
   to 2. Without a profile the call does nothing. */
#ifndef NEARMETAL_LEVELS_H
#define NEARMETAL_LEVELS_H

enum { NO_SECTION = 1, FIRST_LEVEL = 3, MOST_LEVELS = 64 };

#endif
