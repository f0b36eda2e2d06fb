#define _GNU_SOURCE
#include "start.h"
#include "direct.h"
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { CALLERS = 1024, QUEUE = 128, HIGH = 200, NO_COMMAND = 127, NOT_DONE = 111 };

/* The connections to callers that wait for their commands; three places more for commands_wait(). */
static struct pollfd callers[CALLERS + 3];
static int pids[CALLERS]; /* 0 until the request has arrived */
static int waiting;

static void close_fd(int fd) {
    direct(SYS_close, fd, 0, 0, 0);
}

static long reply(int fd, enum nm_step step, long value) {
    struct nm_reply message = {.step = (int32_t)step, .value = (int32_t)value};
    return direct6(SYS_sendto, fd, (long)&message, sizeof message, MSG_NOSIGNAL, 0, 0);
}

int commands_listen(const char *own) {
    struct sockaddr_un name;
    size_t length = 0;
    name.sun_family = AF_UNIX;
    name.sun_path[length++] = '\0';
    for (const char *at = NM_REQUEST_NAME; *at != '\0'; at++)
        name.sun_path[length++] = *at;
    for (; *own != '\0'; own++) {
        if (length == sizeof name.sun_path)
            return -1;
        name.sun_path[length++] = *own;
    }
    int fd = (int)direct(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
    if (fd < 0 ||
        direct(SYS_bind, fd, (long)&name, (long)(offsetof(struct sockaddr_un, sun_path) + length), 0) != 0 ||
        direct(SYS_listen, fd, QUEUE, 0, 0) != 0)
        return -1;
    return fd;
}

bool commands_wait(const int *descriptors, int count, bool *ready) {
    for (int i = 0; i < count; i++)
        callers[waiting + i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
    long found = direct6(SYS_ppoll, (long)callers, waiting + count, 0, 0, 0, 0);
    if (found < 0 && found != -EINTR)
        return false;
    for (int i = 0; i < count; i++)
        ready[i] = found > 0 && callers[waiting + i].revents != 0;
    return true;
}

static void forget(int i) {
    if (callers[i].fd >= 0)
        close_fd(callers[i].fd);
    waiting--;
    callers[i] = callers[waiting];
    pids[i] = pids[waiting];
}

void commands_ended(int pid, int status) {
    for (int i = 0; i < waiting; i++)
        if (pids[i] == pid) {
            if (callers[i].fd >= 0)
                reply(callers[i].fd, NM_ENDED, status);
            forget(i);
            return;
        }
}

static _Noreturn void give_up(int fd, enum nm_step step, long result) {
    reply(fd, step, -result);
    for (;;)
        direct(SYS_exit_group, step == NM_EXEC && result == -ENOENT ? NO_COMMAND : NOT_DONE, 0, 0, 0);
}

static char *after(char *text) {
    while (*text != '\0')
        text++;
    return text + 1;
}

/* Execute a program as execvp() does: try the next path if a file does not exist, and run the file by a shell
 * if the kernel does not know its format. */
static long execute(char *name, uint32_t names, char **arguments, char **variables, char **shell) {
    static char sh[] = "/bin/sh";
    long result = -ENOENT, told = -ENOENT;
    for (; names > 0; names--, name = after(name)) {
        result = direct(SYS_execve, (long)name, (long)arguments, (long)variables, 0);
        if (result == -ENOEXEC) {
            shell[0] = sh;
            shell[1] = name;
            return direct(SYS_execve, (long)sh, (long)shell, (long)variables, 0);
        }
        if (result == -EACCES)
            told = result;
        else if (result != -ENOENT && result != -ENOTDIR && result != -ESTALE && result != -ENODEV &&
                 result != -ETIMEDOUT)
            return result;
    }
    return told;
}

/* The kernel's struct sigaction, which differs from glibc's. */
struct disposition {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static void set_signals(const struct nm_command *command) {
    for (int sign = 1; sign <= 64; sign++) {
        bool ignored = (command->ignored & (uint64_t)1 << (sign - 1)) != 0;
        struct disposition wanted = {ignored ? SIG_IGN : SIG_DFL, 0, 0, 0};
        direct(SYS_rt_sigaction, sign, (long)&wanted, 0, sizeof wanted.mask);
    }
    direct(SYS_rt_sigprocmask, SIG_SETMASK, (long)&command->blocked, 0, sizeof command->blocked);
}

/* Set the resource limits of a command. Limits that are right already are not set, since setting a hard limit
 * may need a capability. */
static long set_limits(const struct nm_command *command) {
    for (int kind = 0; kind < NM_LIMITS; kind++) {
        uint64_t now[2];
        long result = direct(SYS_prlimit64, 0, kind, 0, (long)now);
        if (result == 0 && (now[0] != command->limits[kind][0] || now[1] != command->limits[kind][1]))
            result = direct(SYS_prlimit64, 0, kind, (long)command->limits[kind], 0);
        if (result != 0)
            return result;
    }
    return 0;
}

/* Give the descriptors of a command their numbers. All are first moved to high numbers, so that none is
 * overwritten. */
static long place(const struct nm_command *command, int *kept, const struct nm_request *request,
                  int *answer) {
    uint32_t count = request->kept;
    *answer = (int)direct(SYS_fcntl, *answer, F_DUPFD_CLOEXEC, HIGH, 0);
    if (*answer < 0)
        return *answer;
    for (uint32_t i = 0; i < count; i++) {
        kept[i] = (int)direct(SYS_fcntl, kept[i], F_DUPFD_CLOEXEC, HIGH, 0);
        if (kept[i] < 0)
            return kept[i];
    }
    for (int fd = 0; fd <= 2 && request->detached == 0; fd++)
        close_fd(fd);
    for (uint32_t i = 0; i < count; i++) {
        long result = direct(SYS_dup3, kept[i], command->kept[i], 0, 0);
        if (result < 0)
            return result;
    }
    return 0;
}

static _Noreturn void become(const struct nm_request *request, int *fds) {
    int answer = fds[0];
    int *groups = fds + 2 + (request->unified != 0), *kept = groups + request->groups;
    struct stat file;
    direct(SYS_setpgid, 0, 0, 0, 0); /* so that "kill 0" in a shell does not reach other processes */
    long result = direct(SYS_fstat, fds[1], (long)&file, 0, 0);
    if (result != 0)
        give_up(answer, NM_READ, result);
    result = direct6(SYS_mmap, 0, file.st_size, PROT_READ, MAP_PRIVATE, fds[1], 0);
    if (result < 0 && result > -4096)
        give_up(answer, NM_READ, result);
    const struct nm_command *command = (const struct nm_command *)result;
    for (uint32_t i = 0; i < request->groups; i++)
        if ((result = direct(SYS_write, groups[i], (long)"0", 1, 0)) != 1)
            give_up(answer, NM_CGROUP, result);
    if ((result = direct(SYS_sched_setaffinity, 0, command->cpu_bytes, (long)command->cpus, 0)) < 0)
        give_up(answer, NM_CPUS, result);
    direct(SYS_umask, command->mask, 0, 0, 0);
    char *directory = (char *)(command + 1), *names = after(directory), *text = names;
    if (direct(SYS_chdir, (long)directory, 0, 0, 0) != 0 &&
        (result = direct(SYS_chdir, (long)"/", 0, 0, 0)) != 0)
        give_up(answer, NM_PLACE, result);
    for (uint32_t i = 0; i < command->names; i++)
        text = after(text);
    /* One more pointer before the arguments, for the shell of a script without "#!". */
    size_t words = 3 + (size_t)command->arguments + command->variables;
    result = direct6(SYS_mmap, 0, (long)(words * sizeof(char *)), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (result < 0 && result > -4096)
        give_up(answer, NM_READ, result);
    char **shell = (char **)result, **arguments = shell + 1;
    char **variables = arguments + command->arguments + 1;
    for (uint32_t i = 0; i < command->arguments; i++, text = after(text))
        arguments[i] = text;
    for (uint32_t i = 0; i < command->variables; i++, text = after(text))
        variables[i] = text;
    if ((result = set_limits(command)) != 0 || (result = place(command, kept, request, &answer)) != 0)
        give_up(answer, NM_PLACE, result);
    set_signals(command);
    if ((result = reply(answer, NM_BORN, 0)) < 0)
        give_up(answer, NM_PLACE, result);
    give_up(answer, NM_EXEC, execute(names, command->names, arguments, variables, shell));
}

static long fork_into(int unified) {
    struct clone_args how = {.exit_signal = SIGCHLD, .flags = unified < 0 ? 0 : CLONE_INTO_CGROUP};
    how.cgroup = unified < 0 ? 0 : (uint64_t)unified;
    long child = unified < 0 ? -ENOSYS : direct(SYS_clone3, (long)&how, sizeof how, 0, 0);
    if (child != -ENOSYS && child != -E2BIG)
        return child;
    child = direct6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (child == 0 && unified >= 0) {
        int fd = (int)direct(SYS_openat, unified, (long)"cgroup.procs", O_WRONLY | O_CLOEXEC, 0);
        if (fd < 0 || direct(SYS_write, fd, (long)"0", 1, 0) != 1)
            direct(SYS_exit_group, NOT_DONE, 0, 0, 0);
        close_fd(fd);
    }
    return child;
}

/* Store at most `most` descriptors of a message in `fds`. Return the number of descriptors. */
static int take(const struct msghdr *message, int *fds, int most) {
    int count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = (size_t)part->cmsg_len < sizeof *part ||
                        (char *)part + CMSG_ALIGN(part->cmsg_len) + sizeof *part >
                            (char *)message->msg_control + message->msg_controllen
                    ? NULL
                    : (struct cmsghdr *)((char *)part + CMSG_ALIGN(part->cmsg_len))) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const int *given = (const int *)(const void *)CMSG_DATA(part);
        int many = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < many; i++) {
            if (count < most)
                fds[count++] = given[i];
            else
                close_fd(given[i]);
        }
    }
    return count;
}

void commands_accept(int listener) {
    int fd = (int)direct(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct ucred who;
    socklen_t size = sizeof who;
    bool ours = direct6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&who, (long)&size, 0) == 0 &&
                (long)who.uid == direct(SYS_geteuid, 0, 0, 0, 0);
    if (ours && waiting < CALLERS) {
        callers[waiting] = (struct pollfd){.fd = fd, .events = POLLIN};
        pids[waiting++] = 0;
        return;
    }
    if (ours)
        reply(fd, NM_FORK, EAGAIN);
    close_fd(fd);
}

/* Receive the request of a connection, and start its command. */
static void start(int caller) {
    static union {
        char bytes[CMSG_SPACE((NM_DESCRIPTORS + 2) * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    int fds[NM_DESCRIPTORS + 3] = {callers[caller].fd};
    struct nm_request request;
    struct iovec part = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    long size = direct(SYS_recvmsg, fds[0], (long)&message, MSG_CMSG_CLOEXEC, 0);
    int count = size < 0 ? 0 : take(&message, fds + 1, NM_DESCRIPTORS + 2);
    bool kept = false;
    if (size == (long)sizeof request &&
        (uint64_t)count == 1 + (uint64_t)(request.unified != 0) + request.groups + request.kept) {
        long child = fork_into(request.unified != 0 ? fds[2] : -1);
        if (child == 0)
            become(&request, fds);
        if (child < 0)
            reply(fds[0], NM_FORK, -child);
        kept = child > 0 && request.detached == 0;
        pids[caller] = (int)child;
        callers[caller].events = 0;
    }
    for (int i = 1; i <= count; i++)
        close_fd(fds[i]);
    if (!kept)
        forget(caller);
}

void commands_serve(void) {
    for (int i = waiting - 1; i >= 0; i--) { /* backwards, since forget() moves the last one */
        short found = callers[i].revents;
        callers[i].revents = 0;
        if (found != 0 && pids[i] == 0) {
            start(i);
        } else if ((found & (POLLHUP | POLLERR)) != 0) {
            /* The PID cannot belong to another process, since the child has not been reaped yet. */
            direct(SYS_kill, pids[i], SIGKILL, 0, 0);
            close_fd(callers[i].fd);
            callers[i].fd = -1; /* ignored by poll */
        }
    }
}
