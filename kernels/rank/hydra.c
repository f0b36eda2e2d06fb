#include "hydra.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Whether all that was written into a pipe has been read; true of anything else. */
static bool has_been_read(int fd) {
    struct stat what;
    int waiting;
    return fstat(fd, &what) || !S_ISFIFO(what.st_mode) || ioctl(fd, FIONREAD, &waiting) || waiting == 0;
}

/* What the program said last may still lie in the pipes that Hydra reads, and an abort may overtake it, after
   which nobody waits for it. Once read it stays in front: both go up by the same connection. At most a
   second, for somebody who holds the pipes may write for ever. */
static void let_last_words_out(void) {
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    for (int t = 0; t < 1000 && !(has_been_read(STDOUT_FILENO) && has_been_read(STDERR_FILENO)); t++)
        nanosleep(&pause, NULL);
}

bool hydra_is_here(void) {
    return getenv("MPI_LOCALRANKID") && getenv("PMI_FD"); /* others that speak PMI have no such name */
}

void hydra_abort(int status) {
    if (!hydra_is_here())
        return;
    char *end, line[48];
    const char *given = getenv("PMI_FD");
    long fd = strtol(given, &end, 10);
    if (end == given || *end || fd < 0 || fd > INT_MAX)
        return;
    let_last_words_out();
    /* Version 1 of PMI: taken from whoever holds the descriptor, without its init before. */
    int size = snprintf(line, sizeof line, "cmd=abort exitcode=%d\n", status);
    if (write((int)fd, line, (size_t)size) < 0)
        return; /* it has gone itself: nobody to tell */
}

void hydra_end_stdin(void) {
    if (!hydra_is_here())
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0)
        return; /* few programs read it */
    dup2(null, STDIN_FILENO);
    if (null != STDIN_FILENO)
        close(null);
}
