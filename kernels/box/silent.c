/* nm-box silent -- PROGRAM ARG...: runs a program whose standard input says nothing and does not end before
 * it does. Hydra hands the end of its own on to its proxies at once, and dies of SIGPIPE (with it what the
 * ranks said last) where they are gone by then, since the ranks were done sooner. */
#define _GNU_SOURCE
#include "box.h"

#include <string.h>
#include <unistd.h>

int silent_main(int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "--") != 0)
        refuse("usage: nm-box silent -- PROGRAM ARG...", argc > 1 ? argv[1] : "");
    int ends[2];
    /* The end to write to stays open in the program, so that nobody has to outlive it. */
    if (pipe(ends) != 0)
        die("pipe", "standard input");
    if (ends[0] != STDIN_FILENO && (dup2(ends[0], STDIN_FILENO) < 0 || close(ends[0]) != 0))
        die("dup2", "standard input");
    execute(argv + 2);
}
