/* nm-rank --offered: which perf events the kernel gives here.
   nm-rank [--cpus 0,1] [--report DIR [--events NAME,NAME]] [--preload LIBRARY --profile DIR] -- PROGRAM
   ARG...: pins this MPI rank to its entry of the list (0+1: two CPUs for one rank) and becomes PROGRAM; with
   --report it stays beside it, ends what the program leaves running, writes DIR/rank.<rank>.json (where the
   rank was, what that one program used, these events of counts.h among it, what it left) and ends as the
   program did, or with 0 for one of the --exit-codes. Under Hydra it always stays, to have
   the other ranks ended where the program fails. With --profile the program, and nothing before it, runs with
   LIBRARY (libnm-profile.so), which writes DIR/profile.<rank>.json. Knows no MPI: the launcher's environment
   names the rank. */
#ifndef NEARMETAL_RANK_H
#define NEARMETAL_RANK_H

/* Returns the status to end with. nm-box calls it as well, where it would otherwise execute nm-rank: one
   program less to load in front of a command that is measured. */
int rank_main(int count, char **arguments);
/* The number that the launcher gave this rank; 0 where there is none. */
int rank_of_launcher(void);

#endif
