/* Sections of a profile: MPI_Pcontrol(level) from FIRST_LEVEL on begins one, level 1 leads back to the rest
   of the run. The standard gives 0 to 2 other meanings. Without a profile the call does nothing. */
#ifndef NEARMETAL_LEVELS_H
#define NEARMETAL_LEVELS_H

enum { NO_SECTION = 1, FIRST_LEVEL = 3, MOST_LEVELS = 64 };

#endif
