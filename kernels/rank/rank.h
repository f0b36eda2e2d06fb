/* nm-rank --offered: prints which perf events are available on this machine.

   nm-rank [--cpus 0,1] [--report DIR [--events NAME,NAME]] [--preload LIBRARY --profile DIR] -- PROGRAM
   ARG...: pins this MPI rank to the CPUs of its entry in the list (0+1: two CPUs for one rank) and executes
   PROGRAM.

   With --report it runs PROGRAM as a child instead. When the program has ended, it ends the processes that
   the program left running and writes DIR/rank.<rank>.json: where the rank ran, which resources the program
   used (including the named events of counts.h), and the names of the processes that were left. It exits with
   the program's status, or with 0 for one of the --exit-codes. Under Hydra PROGRAM is always a child, so that
   the other ranks can be ended if it fails.

   With --profile, the program alone runs with LIBRARY (libnm-profile.so), which writes
   DIR/profile.<rank>.json. nm-rank does not use MPI: it reads the rank from the environment that the launcher
   sets. */
#ifndef NEARMETAL_RANK_H
#define NEARMETAL_RANK_H

/* Run nm-rank, and return its exit status. nm-box calls this instead of executing nm-rank, so that one
   program less is loaded before a measured command. */
int rank_main(int count, char **arguments);
/* Return the rank from the launcher's environment variables; 0 if there are none. */
int rank_of_launcher(void);

#endif
