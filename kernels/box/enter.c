/* nm-box enter: runs a command inside a running instance. It joins the instance's cgroups, and then its
 * namespaces. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kind {
    const char *name;
    int flag;
};
/* The user namespace is joined first, since it gives the capabilities that joining the others requires. */
static const struct kind kinds[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},  {"uts", CLONE_NEWUTS},
                                    {"ipc", CLONE_NEWIPC},   {"pid", CLONE_NEWPID}, {"net", CLONE_NEWNET}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static volatile sig_atomic_t child_pid;

/* Path of the /proc file that lists the children of the child, if signals must be sent to them because the
 * child does not pass signals on; otherwise empty. */
static char grandchildren[64];

/* Send a signal to the children of the child. Return whether any got it. */
static bool forward_below(int sign) {
    char list[256];
    bool any = false;
    int fd = open(grandchildren, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, list, sizeof list);
    close(fd);
    pid_t pid = 0;
    for (ssize_t i = 0; i < size; i++) {
        if (list[i] >= '0' && list[i] <= '9') {
            pid = 10 * pid + (list[i] - '0');
        } else if (pid > 0) {
            any = kill(pid, sign) == 0 || any;
            pid = 0;
        }
    }
    return any;
}

static void forward(int sign) {
    int kept = errno;
    if (child_pid > 0 && (grandchildren[0] == '\0' || !forward_below(sign)))
        kill(child_pid, sign);
    errno = kept;
}

void handle_signals(void (*handler)(int), int how) {
    static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, now;
    sigset_t set;
    if (sigemptyset(&set) != 0)
        die("sigemptyset", "forwarded signals");
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
        if (sigaction(forwarded[i], NULL, &now) != 0)
            die("sigaction", "forwarded signals");
        if (now.sa_handler == SIG_IGN) /* the command shall ignore it too */
            continue;
        if (sigaction(forwarded[i], &action, NULL) != 0 || sigaddset(&set, forwarded[i]) != 0)
            die("sigaction", "forwarded signals");
    }
    if (sigprocmask(how, &set, NULL) != 0)
        die("sigprocmask", "forwarded signals");
}

/* Return a descriptor of pid's namespace; -1 if this process is in it already, since setns may refuse to join
 * it again.
 */
static int other_namespace(pid_t pid, const char *name) {
    char path[64], mine[64];
    struct stat theirs, ours;
    if (snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name) < 0 ||
        snprintf(mine, sizeof mine, "/proc/self/ns/%s", name) < 0)
        die("format", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &theirs) != 0 || stat(mine, &ours) != 0)
        die("open namespace", path);
    if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino)
        return fd;
    if (close(fd) != 0)
        die("close", path);
    return -1;
}

/* Return whether namespaces of this kind shall be joined. */
static bool wanted(const struct entry *entry, const struct kind *kind) {
    if (kind->flag == CLONE_NEWUSER)
        return entry->user_namespace;
    size_t length = strlen(kind->name);
    const char *at = entry->only;
    for (; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, kind->name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return entry->only == NULL;
}

static void join_namespaces(const struct entry *entry) {
    int open_fds[KINDS];
    for (int i = 0; i < KINDS; i++) {
        open_fds[i] = wanted(entry, &kinds[i]) ? other_namespace(entry->pid, kinds[i].name) : -1;
    }
    for (int i = 0; i < KINDS; i++)
        if (open_fds[i] >= 0 && setns(open_fds[i], kinds[i].flag) != 0)
            die("setns", kinds[i].name);
}

void join_its_network(const struct entry *entry) {
    struct entry network = *entry;
    network.only = "net";
    join_namespaces(&network);
}

/* Change to the caller's working directory, or to / if it does not exist in the instance. */
static void change_directory(const char *asked, const char *before) {
    if (asked != NULL) {
        if (chdir(asked) != 0)
            die("chdir", asked);
    } else if (chdir(before) != 0 && chdir("/") != 0) {
        die("chdir", "/");
    }
}

static _Noreturn void become(const struct entry *entry, const char *before, char *const argv[]) {
    change_directory(entry->directory, before);
    if (entry->copy)
        execute_copy(argv);
    execute(argv);
}

void enter(const struct entry *entry, char *const argv[]) {
    char before[PATH_MAX] = "/";
    if (entry->directory == NULL && getcwd(before, sizeof before) == NULL)
        before[0] = '/', before[1] = '\0'; /* the directory was removed */
    int unified = entry->init != NULL ? -1 : join_cgroups(&entry->cgroups);
    if (entry->cpus != NULL)
        pin(entry->cpus);
    if (entry->call != NULL)
        answer(entry, argv);
    if (entry->label != NULL && setenv("NEARMETAL_RUN", entry->label, 1) != 0)
        die("setenv", "NEARMETAL_RUN");
    if (entry->init != NULL)
        ask_init(entry, entry->directory != NULL ? entry->directory : before, argv);
    if (entry->pid != 0)
        join_namespaces(entry);
    bind_here(&entry->binds);
    if ((entry->pid == 0 || entry->only != NULL) && unified < 0 && !entry->signal_grandchildren)
        become(entry, before, argv);
    /* Only new processes are in a joined PID namespace, so the command is a child. */
    handle_signals(forward, SIG_BLOCK); /* until child_pid is known, else one that comes early is lost */
    pid_t child = fork_into(unified);
    if (child < 0)
        die("fork", argv[0]);
    if (child == 0) {
        handle_signals(SIG_DFL, SIG_UNBLOCK);
        die_with_parent();
        become(entry, before, argv);
    }
    if (entry->signal_grandchildren && snprintf(grandchildren, sizeof grandchildren,
                                                "/proc/%d/task/%d/children", (int)child, (int)child) < 0)
        die("format", "children");
    child_pid = child;
    handle_signals(forward, SIG_UNBLOCK);
    end_like(child);
}

int enter_main(int argc, char **argv) {
    static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
                                            {"user-namespace", no_argument, NULL, 'u'},
                                            {"cgroup", required_argument, NULL, 'c'},
                                            {"cpus", required_argument, NULL, 'a'},
                                            {"label", required_argument, NULL, 'l'},
                                            {"cwd", required_argument, NULL, 'd'},
                                            {"die-with-parent", no_argument, NULL, 'D'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"call", required_argument, NULL, 'C'},
                                            {"signal-grandchildren", no_argument, NULL, 'G'},
                                            {"copy", no_argument, NULL, 'M'},
                                            {"by-init", required_argument, NULL, 'I'},
                                            {"detached", no_argument, NULL, 'T'},
                                            {"bind", required_argument, NULL, 'b'},
                                            {"at", required_argument, NULL, 'A'},
                                            {NULL, 0, NULL, 0}};
    struct entry entry = {.pid = -1};
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'p':
            entry.pid = (pid_t)number(optarg, INT_MAX, "--pid");
            break;
        case 'u':
            entry.user_namespace = true;
            break;
        case 'c':
            append(&entry.cgroups, optarg, "--cgroup");
            break;
        case 'a':
            entry.cpus = optarg;
            break;
        case 'l':
            entry.label = optarg;
            break;
        case 'd':
            entry.directory = optarg;
            break;
        case 'G':
            entry.signal_grandchildren = true;
            break;
        case 'M':
            entry.copy = true;
            break;
        case 'I':
            entry.init = optarg;
            break;
        case 'T':
            entry.detached = true;
            break;
        case 'b':
            add_bind(&entry.binds, optarg, false, "--bind");
            break;
        case 'A':
            place_bind(&entry.binds, optarg);
            break;
        case 'o':
            if (strstr(optarg, "pid") != NULL)
                refuse("--only is for what needs no new process", optarg);
            entry.only = optarg;
            break;
        case 'D':
            die_with_parent();
            break;
        case 'C':
            entry.call = optarg;
            break;
        default:
            refuse("unknown option", "enter");
        }
    }
    if (entry.pid < 0 || optind >= argc)
        refuse("enter needs --pid and -- argv", "enter");
    if (entry.detached && entry.init == NULL)
        refuse("--detached needs --by-init", "enter");
    enter(&entry, argv + optind);
}
