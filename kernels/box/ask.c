/* Runs a command as a child of the first process of an instance (kernels/common/request.h). Everything that
 * is checkpointed with the instance must be a descendant of that process and in its session. In all other
 * respects the command behaves like a child of this process: directory, environment, streams, cgroups, CPUs,
 * limits, signals and status. */
#define _GNU_SOURCE
#include "box.h"
#include "fail.h"
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

extern char **environ;

_Static_assert(NM_LIMITS == (int)RLIM_NLIMITS, "limits of a process");

static volatile sig_atomic_t command_pid;

static void forward(int sign) {
    int kept = errno;
    if (command_pid > 0)
        kill((pid_t)command_pid, sign);
    errno = kept;
}

/* The descriptors of a request, in the order of struct nm_request. */
struct sent {
    struct nm_request request;
    int fds[NM_DESCRIPTORS + 2];
    int count;
};

static void add(struct sent *sent, int fd) {
    if (sent->count == NM_DESCRIPTORS + 1) /* one more for the file that describes the command */
        refuse("too many open descriptors", "request");
    sent->fds[sent->count++] = fd;
}

/* Add the cgroups of the command. Unlike with join_cgroups(), the command joins those of version 1 itself,
 * and is created in that of version 2. */
static void add_cgroups(struct sent *sent, const struct list *directories) {
    for (int i = 0; i < directories->count; i++) {
        const char *path = directories->items[i];
        struct statfs where;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstatfs(fd, &where) != 0)
            die("open cgroup", path);
        if (where.f_type == CGROUP2_SUPER_MAGIC) {
            if (sent->request.unified != 0)
                refuse("more than one cgroup of version 2", path);
            sent->request.unified = 1;
            memmove(sent->fds + 1, sent->fds, (size_t)sent->count * sizeof *sent->fds);
            sent->fds[0] = fd;
            sent->count++;
            continue;
        }
        int tasks = openat(fd, "tasks", O_WRONLY | O_CLOEXEC);
        if (tasks < 0 || close(fd) != 0)
            die("join cgroup", path);
        add(sent, tasks);
        sent->request.groups++;
    }
}

/* Add the descriptors that a child of this process would inherit. */
static void add_kept(struct sent *sent, struct nm_command *command) {
    for (int fd = 0; fd < NM_DESCRIPTORS; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || (flags & FD_CLOEXEC) != 0)
            continue;
        command->kept[sent->request.kept++] = fd;
        add(sent, fd);
    }
}

static void take_signals(struct nm_command *command) {
    sigset_t blocked;
    if (sigprocmask(SIG_SETMASK, NULL, &blocked) != 0)
        die("sigprocmask", "blocked signals");
    for (int sign = 1; sign < NSIG; sign++) {
        struct sigaction now;
        if (sigismember(&blocked, sign) == 1)
            command->blocked |= (uint64_t)1 << (sign - 1);
        if (sigaction(sign, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            command->ignored |= (uint64_t)1 << (sign - 1);
    }
}

static void take_state(struct nm_command *command) {
    take_signals(command);
    for (int kind = 0; kind < NM_LIMITS; kind++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)kind, &limit) != 0)
            die("getrlimit", "limits");
        command->limits[kind][0] = limit.rlim_cur;
        command->limits[kind][1] = limit.rlim_max;
    }
    command->mask = (uint32_t)umask(0);
    umask((mode_t)command->mask);
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof command->cpus, command->cpus);
    if (bytes < 0)
        die("sched_getaffinity", "CPUs");
    command->cpu_bytes = (uint32_t)bytes;
}

static void put(FILE *file, const char *text) {
    if (fwrite(text, strlen(text) + 1, 1, file) != 1)
        die("write", "request");
}

/* Write the paths that execvp() would try. Return their number. */
static uint32_t put_names(FILE *file, const char *program) {
    const char *path = getenv("PATH");
    if (strchr(program, '/') != NULL || *program == '\0') {
        put(file, program);
        return 1;
    }
    uint32_t count = 0;
    for (const char *at = path != NULL ? path : "/bin:/usr/bin";; at++) {
        size_t length = strcspn(at, ":");
        if (fprintf(file, "%.*s%s%s", (int)length, at, length > 0 ? "/" : "", program) < 0 ||
            fputc('\0', file) == EOF)
            die("write", "request");
        count++;
        at += length;
        if (*at == '\0')
            return count;
    }
}

static uint32_t put_all(FILE *file, char *const *texts) {
    uint32_t count = 0;
    for (; texts[count] != NULL; count++)
        put(file, texts[count]);
    return count;
}

/* Write the description of the command (struct nm_command) to a file in memory. Return its descriptor. */
static int written(struct nm_command *command, const char *directory, char *const argv[]) {
    int fd = memfd_create("nm-command", MFD_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL || fseek(file, sizeof *command, SEEK_SET) != 0)
        die("memfd_create", "request");
    put(file, directory);
    command->names = put_names(file, argv[0]);
    command->arguments = put_all(file, argv);
    command->variables = put_all(file, environ);
    if (fseek(file, 0, SEEK_SET) != 0 || fwrite(command, sizeof *command, 1, file) != 1 || fflush(file) != 0)
        die("write", "request");
    return fd;
}

/* Connect to the first process of an instance. Another user may have taken its name since it ended. */
static int connect_to_init(const char *init) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s%s", NM_REQUEST_NAME, init);
    if (length < 0 || (size_t)length >= sizeof name.sun_path - 1)
        refuse("name too long", init);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    struct ucred who;
    socklen_t who_size = sizeof who;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&name, size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_size) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
        die("ask the first process of the instance", init);
    if (who.uid != geteuid())
        refuse("another user has taken the name of the first process", init);
    return fd;
}

static void send_request(int fd, struct sent *sent) {
    union {
        char bytes[CMSG_SPACE(sizeof sent->fds)];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {&sent->request, sizeof sent->request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE((size_t)sent->count * sizeof *sent->fds)};
    memset(&control, 0, sizeof control);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN((size_t)sent->count * sizeof *sent->fds);
    memcpy(CMSG_DATA(rights), sent->fds, (size_t)sent->count * sizeof *sent->fds);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)sizeof sent->request)
        die("send", "request");
}

/* Receive the next reply, and the PID of its sender. Return false if the socket is closed. */
static bool receive(int fd, struct nm_reply *reply, pid_t *sender) {
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t size;
    do {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    if (size < 0 && errno != ECONNRESET)
        die("read", "reply of the first process");
    const struct cmsghdr *who = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (who != NULL && who->cmsg_type == SCM_CREDENTIALS)
        *sender = ((const struct ucred *)(const void *)CMSG_DATA(who))->pid;
    return size == (ssize_t)sizeof *reply;
}

static _Noreturn void not_done(const struct nm_reply *reply, const char *program) {
    static const char *const steps[] = {[NM_FORK] = "fork",
                                        [NM_READ] = "read the request",
                                        [NM_CGROUP] = "join cgroup",
                                        [NM_CPUS] = "sched_setaffinity",
                                        [NM_PLACE] = "prepare the command",
                                        [NM_EXEC] = "exec"};
    errno = reply->value;
    if (reply->step == NM_EXEC && errno == ENOENT) {
        fail_report("exec: %s (%s)", strerror(errno), program);
        _exit(EXIT_NOT_FOUND);
    }
    die(steps[reply->step], program);
}

void ask_init(const struct entry *entry, const char *directory, char *const argv[]) {
    static struct nm_command command;
    struct sent sent = {.request = {.detached = entry->detached}, .count = 0};
    take_state(&command);
    add_cgroups(&sent, &entry->cgroups);
    if (!entry->detached) /* a detached command gets the streams of the first process */
        add_kept(&sent, &command);
    int file = written(&command, directory, argv);
    memmove(sent.fds + 1, sent.fds, (size_t)sent.count * sizeof *sent.fds);
    sent.fds[0] = file;
    sent.count++;
    if (entry->pid != 0)
        join_its_network(entry);
    handle_signals(forward, SIG_BLOCK); /* until command_pid is known, else one that comes early is lost */
    int init = connect_to_init(entry->init);
    send_request(init, &sent);
    if (close(file) != 0)
        die("close", "request");
    for (int i = 0; i < (int)sent.request.kept; i++) /* the command's alone: who reads from it sees its end */
        close(command.kept[i] == STDERR_FILENO ? -1 : command.kept[i]);
    struct nm_reply reply;
    pid_t sender = 0;
    while (receive(init, &reply, &sender)) {
        if (reply.step == NM_ENDED)
            end_with(reply.value);
        if (reply.step != NM_BORN)
            not_done(&reply, argv[0]);
        command_pid = sender;
        handle_signals(forward, SIG_UNBLOCK);
    }
    if (entry->detached && command_pid > 0)
        _exit(0);
    end_with(SIGKILL); /* with its instance */
}
