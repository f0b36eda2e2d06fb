/* nm-box relay: a switch between emulated nodes that delays frames, for kernels without netem. It takes
 * Ethernet frames from its ports, holds each for a fixed time after its arrival, and sends it to the port at
 * which the destination was last seen, or to all other ports. Rate and loss are set by the queueing
 * disciplines of the ports.
 *
 * The delay counts from the kernel's time stamp of the arrival, so a late wake-up shortens the wait instead
 * of adding to it. The kernel stamps by CLOCK_REALTIME; all else is by CLOCK_MONOTONIC, so that a step of the
 * clock delays no frame. If permitted, the relay runs before all ordinary processes (SCHED_FIFO), since the
 * ranks spin. On SIGUSR1 it reports how late frames were. */
#define _GNU_SOURCE
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS_MAX = 64,
    FRAMES = 4096,       /* maximum number of frames that are held; more are dropped and counted */
    FRAME_MAX = 1 << 16, /* with offloads a frame can be as long as an IP packet */
    ADDRESSES = 1024,    /* size of the table of MAC addresses; a power of two */
    BATCH = 64,          /* frames taken from one port before the next port */
    ADDRESS = 6,
};

struct frame {
    uint64_t due;
    uint64_t arrived;
    int port;
    uint32_t length;
    unsigned char *data;
};

struct place {
    unsigned char address[ADDRESS];
    int port; /* -1: free */
};

struct relay {
    int sockets[PORTS_MAX];
    int ports;
    uint64_t delay;
    struct frame *ring;
    unsigned first, count;
    struct place *places;
    uint64_t forwarded, dropped, refused, late_sum, late_most;
};

static volatile sig_atomic_t asked;

static void ask(int sign) {
    (void)sign;
    asked = 1;
}

static uint64_t realtime_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        die("clock_gettime", "CLOCK_REALTIME");
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Convert a time stamp of the kernel to CLOCK_MONOTONIC. */
static uint64_t monotonic(uint64_t stamp) {
    uint64_t real = realtime_ns(), now = now_ns(), age = real > stamp ? real - stamp : 0;
    return age < now ? now - age : 0;
}

static int open_port(const char *name) {
    unsigned index = if_nametoindex(name);
    if (index == 0)
        die("find port", name);
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("open packet socket", name);
    int on = 1, room = 8 << 20;
    struct packet_mreq all = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0)
        die("set up port", name);
    /* As large as permitted, since a burst waits in this buffer. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) != 0)
        die("set receive buffer", name);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0)
        die("bind", name);
    return fd;
}

static struct place *look_up(struct relay *r, const unsigned char *address) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (int i = 0; i < ADDRESS; i++)
        hash = (hash ^ address[i]) * 16777619u;
    for (unsigned probe = 0; probe < ADDRESSES; probe++) {
        struct place *p = &r->places[(hash + probe) & (ADDRESSES - 1)];
        if (p->port < 0 || memcmp(p->address, address, ADDRESS) == 0)
            return p;
    }
    return NULL; /* the table is full: the frame goes to all ports */
}

static void learn(struct relay *r, const unsigned char *address, int port) {
    struct place *p = (address[0] & 1) ? NULL : look_up(r, address); /* a group address is no sender */
    if (p != NULL) {
        memcpy(p->address, address, ADDRESS);
        p->port = port;
    }
}

static void send_to(struct relay *r, int port, const struct frame *f) {
    if (send(r->sockets[port], f->data, f->length, MSG_DONTWAIT) != (ssize_t)f->length)
        r->refused++; /* the port's queue is full (it counts its drops), or the frame is too long */
}

static void forward(struct relay *r, const struct frame *f) {
    uint64_t now = now_ns(), took = now > f->arrived ? now - f->arrived : 0;
    uint64_t late = took > r->delay ? took - r->delay : 0;
    r->late_sum += late;
    r->late_most = late > r->late_most ? late : r->late_most;
    r->forwarded++;
    const struct place *p = (f->data[0] & 1) ? NULL : look_up(r, f->data);
    if (p != NULL && p->port >= 0) {
        if (p->port != f->port)
            send_to(r, p->port, f);
        return;
    }
    for (int port = 0; port < r->ports; port++)
        if (port != f->port)
            send_to(r, port, f);
}

static uint64_t arrival(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec at;
            memcpy(&at, CMSG_DATA(c), sizeof at);
            return monotonic((uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec);
        }
    return now_ns();
}

/* Move the frames of one port into the ring, in which frames wait in the order of arrival. */
static void take(struct relay *r, int port) {
    for (int i = 0; i < BATCH; i++) {
        char control[CMSG_SPACE(sizeof(struct timespec))];
        struct frame *f = &r->ring[(r->first + r->count) % FRAMES];
        unsigned char lost[1];
        bool full = r->count == FRAMES;
        struct iovec part = {.iov_base = full ? lost : f->data, .iov_len = full ? sizeof lost : FRAME_MAX};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg(r->sockets[port], &message, MSG_DONTWAIT);
        if (length < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ENETDOWN)
                return; /* a port that is down reports this once; it works again when it is up */
            die("receive", "port");
        }
        if (full) {
            r->dropped++;
            continue;
        }
        if (length < ETH_HLEN || (message.msg_flags & MSG_TRUNC) != 0)
            continue;
        f->arrived = arrival(&message);
        f->due = f->arrived + r->delay;
        f->port = port;
        f->length = (uint32_t)length;
        learn(r, f->data + ADDRESS, port);
        r->count++;
    }
}

static void send_due(struct relay *r) {
    while (r->count > 0 && r->ring[r->first].due <= now_ns()) {
        forward(r, &r->ring[r->first]);
        r->first = (r->first + 1) % FRAMES;
        r->count--;
    }
}

/* Wait until a frame arrives or the oldest held frame is due. */
static void wait_for_work(const struct relay *r, struct pollfd *watched, const sigset_t *unblocked) {
    struct timespec left, *limit = NULL;
    if (r->count > 0) {
        uint64_t now = now_ns(), due = r->ring[r->first].due;
        uint64_t wait = due > now ? due - now : 0;
        left =
            (struct timespec){.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
        limit = &left;
    }
    if (ppoll(watched, (nfds_t)r->ports, limit, unblocked) < 0 && errno != EINTR)
        die("ppoll", "ports");
}

static void tell(const struct relay *r, int fd) {
    report(fd,
           "{\"forwarded\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"refused\": %" PRIu64
           ", \"late_mean_ns\": %" PRIu64 ", \"late_most_ns\": %" PRIu64 "}\n",
           r->forwarded, r->dropped, r->refused, r->forwarded ? r->late_sum / r->forwarded : 0, r->late_most);
}

static bool before_others(void) {
    struct sched_param first = {.sched_priority = 1};
    /* The system call is used because musl's function always fails. */
    return syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &first) == 0;
}

static void set_up(struct relay *r, char **names, int count) {
    if (count < 2 || count > PORTS_MAX)
        refuse("relay needs 2 to 64 ports", "relay");
    r->ports = count;
    for (int i = 0; i < count; i++)
        r->sockets[i] = open_port(names[i]);
    r->ring = calloc(FRAMES, sizeof *r->ring);
    r->places = malloc(ADDRESSES * sizeof *r->places);
    unsigned char *data =
        malloc((size_t)FRAMES * FRAME_MAX); /* only the pages that frames use are allocated */
    if (r->ring == NULL || r->places == NULL || data == NULL)
        die("allocate", "frames");
    for (size_t i = 0; i < FRAMES; i++)
        r->ring[i].data = data + i * FRAME_MAX;
    for (int i = 0; i < ADDRESSES; i++)
        r->places[i].port = -1;
}

static void join_network(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0 || close(fd) != 0)
        die("setns", path);
}

int relay_main(int argc, char **argv) {
    static const struct option options[] = {
        {"delay-ns", required_argument, NULL, 'd'},   {"netns", required_argument, NULL, 'n'},
        {"cgroup", required_argument, NULL, 'c'},     {"report-fd", required_argument, NULL, 'f'},
        {"statistics", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    struct relay r = {0};
    struct list cgroups = {0};
    int report_fd = -1;
    const char *netns = NULL, *statistics = NULL;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'd':
            r.delay = (uint64_t)number(optarg, 1000000000L, "--delay-ns");
            break;
        case 'n':
            netns = optarg;
            break;
        case 'c':
            append(&cgroups, optarg, "--cgroup");
            break;
        case 'f':
            report_fd = (int)number(optarg, 1023, "--report-fd");
            break;
        case 's':
            statistics = optarg;
            break;
        default:
            refuse("unknown option", "relay");
        }
    }
    if (report_fd < 0 || statistics == NULL)
        refuse("relay needs --report-fd, --statistics and -- PORT PORT...", "relay");
    int told = open(statistics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (told < 0)
        die("open", statistics);
    die_with_parent();
    int unified = join_cgroups(&cgroups);
    if (unified >= 0) { /* a v2 group takes a process only as it is born */
        pid_t child = fork_into(unified);
        if (child < 0)
            die("fork", "relay");
        if (child > 0)
            end_like(child);
    }
    if (netns != NULL)
        join_network(netns);
    sigset_t blocked, unblocked;
    struct sigaction action = {.sa_handler = ask};
    if (sigemptyset(&blocked) != 0 || sigaddset(&blocked, SIGUSR1) != 0 ||
        sigprocmask(SIG_BLOCK, &blocked, &unblocked) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        die("sigaction", "SIGUSR1");
    die_with_parent();
    set_up(&r, argv + optind, argc - optind);
    bool first = before_others();
    if (prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0) != 0)
        die("prctl", "timer slack");
    struct pollfd watched[PORTS_MAX];
    for (int i = 0; i < r.ports; i++)
        watched[i] = (struct pollfd){.fd = r.sockets[i], .events = POLLIN};
    report(report_fd, "{\"ports\": %d, \"realtime\": %d, \"pid\": %d}\n", r.ports, (int)first, (int)getpid());
    for (;;) {
        wait_for_work(&r, watched, &unblocked);
        for (int port = 0; port < r.ports; port++)
            if (watched[port].revents != 0)
                take(&r, port);
        send_due(&r);
        if (asked) {
            asked = 0;
            tell(&r, told);
        }
    }
}
