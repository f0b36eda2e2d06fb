/* Executes a program from a sealed copy of it in memory, as lxc-attach does itself, so that nothing in a
 * container can overwrite the file of the program (CVE-2019-5736). lxc-attach fails if the kernel is busy for
 * more than 150 ms with pages of its copy. It makes none if it runs from a copy that is sealed already, and
 * this waits longer for the kernel. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3 */
#endif

extern char **environ;

static const uint64_t seal_ns = 10000000000; /* most that is waited for the kernel */

static int memory(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static bool copy(int to, int from) {
    struct stat file;
    if (fstat(from, &file) != 0)
        return false;
    for (off_t left = file.st_size; left > 0;) {
        ssize_t sent = sendfile(to, from, NULL, (size_t)left);
        if (sent <= 0)
            return false;
        left -= sent;
    }
    return true;
}

static bool seal(int fd) {
    uint64_t end = now_ns() + seal_ns;
    for (;;) {
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
            return true;
        if (errno != EBUSY || now_ns() > end)
            return false;
        usleep(1000);
    }
}

void execute_copy(char *const argv[]) {
    const char *last = strrchr(argv[0], '/');
    int from = last != NULL ? open(argv[0], O_RDONLY | O_CLOEXEC) : -1;
    int fd = from >= 0 ? memory(last + 1) : -1;
    if (fd >= 0 && copy(fd, from) && seal(fd))
        fexecve(fd, argv, environ);
    execute(argv); /* no copy can be executed here: the program makes its own, or says why not */
}
