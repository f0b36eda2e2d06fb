/* Hydra, the mpirun of MPICH. It ends the other ranks where one ends with an error after MPI_Init; of one
   that ends before (a library that is missing, say) it takes no notice, and the others wait for it in
   MPI_Init. */
#ifndef NEARMETAL_HYDRA_H
#define NEARMETAL_HYDRA_H

#include <stdbool.h>

/* Whether it started this process. */
bool hydra_is_here(void);
/* Have it end all ranks of this launch, with that status. Nothing where it is not here. */
void hydra_abort(int status);

/* In place of a standard input that never ends, which it leaves to the first rank (nm-box silent): one that
   is at its end, as the ranks of others have it. */
void hydra_end_stdin(void);

#endif
