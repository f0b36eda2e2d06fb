/* nm-box silent -- PROGRAM ARG...: runs a program with a standard input that is empty and does not end. Hydra
 * passes the end of its standard input on to its proxies. If the ranks are so short that the proxies have
 * ended by then, Hydra dies of SIGPIPE, and the last output of the ranks is lost. */
#define _GNU_SOURCE
#include "box.h"

#include <string.h>
#include <unistd.h>

int silent_main(int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "--") != 0)
        refuse("usage: nm-box silent -- PROGRAM ARG...", argc > 1 ? argv[1] : "");
    int ends[2];
    /* The program inherits the write end, so that its standard input ends only with itself. */
    if (pipe(ends) != 0)
        die("pipe", "standard input");
    if (ends[0] != STDIN_FILENO && (dup2(ends[0], STDIN_FILENO) < 0 || close(ends[0]) != 0))
        die("dup2", "standard input");
    execute(argv + 2);
}
