#include "hydra.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Return whether everything written to a pipe has been read; true if the descriptor is no pipe. */
static bool has_been_read(int fd) {
    struct stat what;
    int waiting;
    return fstat(fd, &what) || !S_ISFIFO(what.st_mode) || ioctl(fd, FIONREAD, &waiting) || waiting == 0;
}

/* Wait until Hydra has read the program's last output from its pipes. Otherwise the abort could overtake the
   output, which would then be lost. Output that has been read is safe, since it goes to mpirun over the same
   connection as the abort. This waits for at most a second, since another process may write to the pipes
   without end. */
static void let_last_words_out(void) {
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    for (int t = 0; t < 1000 && !(has_been_read(STDOUT_FILENO) && has_been_read(STDERR_FILENO)); t++)
        nanosleep(&pause, NULL);
}

bool hydra_is_here(void) {
    return getenv("MPI_LOCALRANKID") && getenv("PMI_FD"); /* other launchers with PMI do not set the first */
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
    /* PMI version 1. Hydra accepts the command from any process with the descriptor, without a preceding
     * init. */
    int size = snprintf(line, sizeof line, "cmd=abort exitcode=%d\n", status);
    if (write((int)fd, line, (size_t)size) < 0)
        return; /* Hydra's proxy has ended already */
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
