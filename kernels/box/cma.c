/* nm-box cma: tests whether a process of an instance may read the memory of another process that is not its
 * child (process_vm_readv), as MPI ranks do for long messages. Prints "allowed", or "refused: REASON". */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORTH = 0x5eed };
static volatile int shown; /* at the same address in both */

/* Return 0, or the errno if the memory of the sibling cannot be read. */
static int read_sibling(pid_t sibling) {
    int found = 0;
    struct iovec here = {.iov_base = &found, .iov_len = sizeof found};
    struct iovec there = {.iov_base = (void *)&shown, .iov_len = sizeof shown};
    if (process_vm_readv(sibling, &here, 1, &there, 1, 0) != (ssize_t)sizeof found)
        return errno ? errno : EIO;
    return found == WORTH ? 0 : EIO;
}

int cma_main(int argc, char **argv) {
    if (argc != 1)
        refuse("cma takes no arguments", argv[1]);
    shown = WORTH;
    pid_t sibling = fork();
    if (sibling < 0)
        die("fork", "sibling");
    if (sibling == 0) {
        die_with_parent();
        for (;;)
            pause();
    }
    pid_t reader = fork();
    if (reader < 0)
        die("fork", "reader");
    if (reader == 0)
        _exit(read_sibling(sibling));
    int status = 0;
    while (waitpid(reader, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid", "reader");
    if (kill(sibling, SIGKILL) != 0)
        die("kill", "sibling");
    if (!WIFEXITED(status))
        refuse("the reader was killed", "cma");
    if (WEXITSTATUS(status) == 0)
        puts("allowed");
    else
        printf("refused: %s\n", strerror(WEXITSTATUS(status)));
    return fflush(stdout) == 0 ? 0 : EXIT_BOX;
}
