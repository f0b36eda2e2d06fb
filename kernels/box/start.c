/* nm-box start: starts one instance. This process joins and unshares namespaces; its child builds the root
 * and executes nm-init. Then this process waits, since the instance ends with it, and it ends with nearmetal.
 */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct start {
    const char *scratch;
    const char *tree;
    const char *layer;
    const char *hostname;
    const char *netns;
    const char *user;
    const char *cpus;
    bool new_net;
    bool bare;
    bool mounts_only;
    int shared; /* kinds of namespaces that are not unshared */
    int report_fd;
    struct list cgroups;
    struct binds binds;
};

static int shareable(const char *kind) {
    if (strcmp(kind, "ipc") == 0)
        return CLONE_NEWIPC;
    if (strcmp(kind, "pid") == 0)
        return CLONE_NEWPID;
    refuse("--share takes ipc or pid", kind);
}

static struct start parse(int argc, char **argv) {
    static const struct option options[] = {{"root-overlay", required_argument, NULL, 'r'},
                                            {"tree", required_argument, NULL, 't'},
                                            {"layer", required_argument, NULL, 'l'},
                                            {"mounts-only", no_argument, NULL, 'm'},
                                            {"hostname", required_argument, NULL, 'h'},
                                            {"netns", required_argument, NULL, 'n'},
                                            {"new-net", no_argument, NULL, 'N'},
                                            {"bare", no_argument, NULL, 'O'},
                                            {"user-namespace", required_argument, NULL, 'u'},
                                            {"cgroup", required_argument, NULL, 'c'},
                                            {"bind", required_argument, NULL, 'b'},
                                            {"bind-read-only", required_argument, NULL, 'B'},
                                            {"at", required_argument, NULL, 'a'},
                                            {"cpus", required_argument, NULL, 'p'},
                                            {"report-fd", required_argument, NULL, 'f'},
                                            {"share", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    struct start start = {.tree = "/", .report_fd = -1};
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'r':
            start.scratch = optarg;
            break;
        case 't':
            start.tree = optarg;
            break;
        case 'l':
            start.layer = optarg;
            break;
        case 'm':
            start.mounts_only = true;
            break;
        case 'h':
            start.hostname = optarg;
            break;
        case 'n':
            start.netns = optarg;
            break;
        case 'N':
            start.new_net = true;
            break;
        case 'O':
            start.bare = true;
            break;
        case 'u':
            start.user = optarg;
            break;
        case 'c':
            append(&start.cgroups, optarg, "--cgroup");
            break;
        case 'b':
            add_bind(&start.binds, optarg, false, "--bind");
            break;
        case 'B':
            add_bind(&start.binds, optarg, true, "--bind-read-only");
            break;
        case 'a':
            place_bind(&start.binds, optarg);
            break;
        case 'p':
            start.cpus = optarg;
            break;
        case 's':
            start.shared |= shareable(optarg);
            break;
        case 'f':
            start.report_fd = (int)number(optarg, 1023, "--report-fd");
            break;
        default:
            refuse("unknown option", "start");
        }
    }
    if ((start.scratch == NULL) != start.bare || start.report_fd < 0 || optind >= argc)
        refuse("start needs --root-overlay or --bare, --report-fd and -- argv", "start");
    if ((start.hostname == NULL) != start.mounts_only || (start.bare && start.mounts_only))
        refuse("start needs --hostname, or --mounts-only, which keeps the machine's own", "start");
    if (start.netns != NULL && start.new_net)
        refuse("--netns and --new-net exclude each other", start.netns);
    return start;
}

void loopback_up(void) {
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    memcpy(request.ifr_name, "lo", sizeof "lo");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0 || close(fd) != 0)
        die("bring up", "lo");
}

void join_namespace(int fd, int kind, const char *path) {
    if (fd >= 0 && (setns(fd, kind) != 0 || close(fd) != 0))
        die("setns", path);
}

int open_namespace(const char *path) {
    if (path == NULL)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("open namespace", path);
    return fd;
}

static void unshare_all(const struct start *start) {
    /* Both are opened before the first setns, after which a path may no longer be visible. */
    int user = open_namespace(start->user), net = open_namespace(start->netns);
    join_namespace(user, CLONE_NEWUSER, start->user);
    join_namespace(net, CLONE_NEWNET, start->netns);
    /* A bare instance is an emulated node: the machine itself with another host name and network. */
    int kinds = start->bare ? CLONE_NEWUTS : CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID;
    if (start->mounts_only)
        kinds = CLONE_NEWNS;
    if (unshare((kinds | (start->new_net ? CLONE_NEWNET : 0)) & ~start->shared) != 0)
        die("unshare", "mount, uts, ipc, pid namespaces");
    if (start->new_net)
        loopback_up();
    die_with_parent();
}

int start_main(int argc, char **argv) {
    uint64_t began = now_ns();
    struct start start = parse(argc, argv);
    die_with_parent();
    int unified = join_cgroups(&start.cgroups);
    if (start.cpus != NULL)
        pin(start.cpus);
    unshare_all(&start);
    uint64_t unshared = now_ns();
    pid_t child = fork_into(unified);
    if (child < 0)
        die("fork", argv[optind]);
    if (child == 0) {
        const struct root plan = {.tree = start.tree,
                                  .layer = start.layer,
                                  .scratch = start.scratch,
                                  .binds = &start.binds,
                                  .rootless = start.user != NULL,
                                  .own_network = start.new_net || start.netns != NULL,
                                  .own_pids = !start.mounts_only,
                                  .shared_shm = (start.shared & CLONE_NEWIPC) != 0};
        die_with_parent();
        if (start.hostname != NULL && sethostname(start.hostname, strlen(start.hostname)) != 0)
            die("sethostname", start.hostname);
        if (start.bare)
            bind_here(&start.binds);
        else
            build_root(&plan);
        report(start.report_fd, "{\"root\": %" PRIu64 "}\n", now_ns());
        execute(argv + optind);
    }
    report(start.report_fd, "{\"pid\": %d, \"spawn\": %" PRIu64 ", \"namespaces\": %" PRIu64 "}\n",
           (int)child, began, unshared);
    end_like(child);
}
