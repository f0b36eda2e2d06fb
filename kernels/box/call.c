/* nm-box call: runs a command inside an instance by the container program's own command ("runc exec", "podman
 * exec"). Container programs pass on neither the environment nor the working directory and, some of them, no
 * signals. So this writes the environment and the directory to a file, and signals to a FIFO, in a directory
 * that the instance has at the same path. The inner end is nm-box enter --call (answer()). */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t signals = -1;

static void forward(int sign) {
    int kept = errno;
    unsigned char byte = (unsigned char)sign;
    if (write((int)signals, &byte, 1) != 1)
        _exit(EXIT_BOX); /* cannot happen: a FIFO holds thousands, and this process has its other end open too
                          */
    errno = kept;
}

static struct beside { char text[PATH_MAX]; } beside(const char *call, const char *ending) {
    struct beside path;
    int length = snprintf(path.text, sizeof path.text, "%s.%s", call, ending);
    if (length < 0 || (size_t)length >= sizeof path.text)
        refuse("path too long", call);
    return path;
}

static void put(FILE *file, const char *text, const char *path) {
    if (fwrite(text, strlen(text) + 1, 1, file) != 1)
        die("write", path);
}

/* Write the working directory, then each environment variable; each text ends with a zero byte. */
static void leave_environment(const char *path) {
    char here[PATH_MAX] = "/";
    if (getcwd(here, sizeof here) == NULL)
        here[0] = '/', here[1] = '\0'; /* the directory was removed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL)
        die("create", path);
    put(file, here, path);
    for (char **variable = environ; *variable != NULL; variable++)
        put(file, *variable, path);
    if (fclose(file) != 0)
        die("write", path);
}

/* Replace the first word "{}" by the path prefix of this call's files. */
static void insert(char **words, char *call) {
    for (; *words != NULL; words++)
        if (strcmp(*words, "{}") == 0) {
            *words = call;
            return;
        }
    refuse("no word {} in the command", call);
}

int call_main(int argc, char **argv) {
    if (argc < 4 || strcmp(argv[2], "--") != 0)
        refuse("usage: nm-box call DIRECTORY -- PROGRAM... {} ...", "call");
    char call[PATH_MAX];
    int length = snprintf(call, sizeof call, "%s/%d-%" PRIu64, argv[1], (int)getpid(), now_ns());
    if (length < 0 || (size_t)length >= sizeof call)
        refuse("path too long", argv[1]);
    insert(argv + 3, call);
    struct beside environment = beside(call, "environment"), fifo = beside(call, "signals");
    leave_environment(environment.text);
    int fd = mkfifo(fifo.text, 0600) != 0 ? -1 : open(fifo.text, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        die("make FIFO", fifo.text);
    signals = fd;
    handle_signals(forward, SIG_UNBLOCK);
    pid_t child = fork();
    if (child < 0)
        die("fork", argv[3]);
    if (child == 0) {
        die_with_parent(); /* exec resets the signal handlers; no signal is blocked, as the command would
                              inherit it */
        execute(argv + 3);
    }
    siginfo_t ended;
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) != 0)
        if (errno != EINTR)
            die("wait", argv[3]);
    if (unlink(environment.text) != 0 || unlink(fifo.text) != 0)
        die("unlink", call);
    end_like(child);
}

/* Read the file of leave_environment(). Its text stays in memory as the environment of this process. */
static void take_environment(const char *path) {
    struct stat what;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &what) != 0)
        die("open", path);
    size_t size = (size_t)what.st_size, have = 0, count = 0;
    char *text = malloc(size + 1);
    if (text == NULL)
        die("allocate", path);
    while (have < size) {
        ssize_t more = read(fd, text + have, size - have);
        if (more <= 0)
            die("read", path);
        have += (size_t)more;
    }
    if (close(fd) != 0)
        die("close", path);
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\0';
    char **variables = calloc(count + 1, sizeof *variables);
    if (variables == NULL)
        die("allocate", path);
    char *at = text + strlen(text) + 1;
    for (size_t i = 0; at < text + size; i++) {
        variables[i] = at;
        at += strlen(at) + 1;
    }
    environ = variables;
    if (chdir(text) != 0 && chdir("/") != 0)
        die("chdir", "/");
}

/* Send the signals in the FIFO to the child. At the end of the FIFO the caller has ended, and the child is
 * killed. */
static void hand_on(int fifo, pid_t child) {
    unsigned char sign[32];
    ssize_t count = read(fifo, sign, sizeof sign);
    if (count < 0 && errno != EAGAIN && errno != EINTR)
        die("read", "FIFO");
    for (ssize_t i = 0; i < count; i++)
        kill(child, sign[i]);
    if (count == 0)
        kill(child, SIGKILL);
}

_Noreturn void answer(const struct entry *entry, char *const argv[]) {
    const char *call = entry->call;
    sigset_t ends, before;
    int fifo = open(beside(call, "signals").text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fifo < 0)
        die("open FIFO", call);
    take_environment(beside(call, "environment").text);
    if (entry->label != NULL && setenv("NEARMETAL_RUN", entry->label, 1) != 0)
        die("setenv", "NEARMETAL_RUN");
    if (sigemptyset(&ends) != 0 || sigaddset(&ends, SIGCHLD) != 0 ||
        sigprocmask(SIG_BLOCK, &ends, &before) != 0)
        die("sigprocmask", "SIGCHLD");
    int ended = signalfd(-1, &ends, SFD_CLOEXEC);
    pid_t child = ended < 0 ? -1 : fork();
    if (child < 0)
        die("fork", argv[0]);
    if (child == 0) {
        if (sigprocmask(SIG_SETMASK, &before, NULL) != 0)
            die("sigprocmask", "SIGCHLD");
        die_with_parent();
        char here[PATH_MAX];
        if (entry->init != NULL)
            ask_init(entry, getcwd(here, sizeof here) != NULL ? here : "/", argv);
        execute(argv);
    }
    struct pollfd waited[] = {{.fd = fifo, .events = POLLIN}, {.fd = ended, .events = POLLIN}};
    /* The FIFO is read once before polling: poll does not report a caller that ended before the FIFO was
     * opened. */
    for (hand_on(fifo, child); waited[1].revents == 0;) {
        if (poll(waited, 2, -1) < 0 && errno != EINTR)
            die("poll", call);
        if ((waited[0].revents & POLLIN) != 0)
            hand_on(fifo, child);
        else if ((waited[0].revents & POLLHUP) != 0) {
            hand_on(fifo, child);
            waited[0].fd = -1;
        }
    }
    end_like(child);
}
