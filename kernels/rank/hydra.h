/* Hydra, the mpirun of MPICH. If a rank ends with an error after MPI_Init, Hydra ends the other ranks. It
   does not if a rank ends before MPI_Init, for example because a library is missing: the others then wait in
   MPI_Init. */
#ifndef NEARMETAL_HYDRA_H
#define NEARMETAL_HYDRA_H

#include <stdbool.h>

/* Return whether Hydra started this process. */
bool hydra_is_here(void);
/* Let Hydra end all ranks of this launch with this status. Does nothing without Hydra. */
void hydra_abort(int status);

/* With Hydra, replace standard input by /dev/null, as other launchers do. Hydra gives the first rank its own
   standard input, which never ends here (nm-box silent). */
void hydra_end_stdin(void);

#endif
