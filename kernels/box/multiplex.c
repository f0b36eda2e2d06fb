/* nm-box multiplex --port PATH | --connect LINE [--key FILE] [--seconds N] --listen PATH --report-fd N, or
 * nm-box multiplex --listen PATH --report-fd N -- COMMAND...: holds the host's end of the line to an agent
 * (frames.h).
 *
 * --port: a Unix socket to which QEMU connects. --connect: the address of an agent that listens,
 * tcp:ADDRESS:PORT or a Unix socket that is forwarded to it; it is tried until the agent answers, or for
 * --seconds. COMMAND: a program whose standard streams lead to an agent (ssh ... nm-guest serve).
 *
 * --listen: a Unix socket to which programs of the host connect. Only this user may connect. Each connection
 * gets a channel of its own. nm-box multiplex ends with the guest, or with the thread that started it.
 *
 * The line survives a move of the guest to a second hypervisor. After MOVE, nothing more is sent to the first
 * hypervisor. MOVED is answered when the first hypervisor has read everything that was sent, so that it is in
 * the guest's memory and moves with it. After SWITCH, everything that the first hypervisor has still written
 * is read to its end, and then the second hypervisor takes over. The bytes of both form one stream, so the
 * agent does not notice the move. The first hypervisor may end before SWITCH. */
#define _GNU_SOURCE
#include "box.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* UNREAD: bytes that are kept for a caller that does not read them. The agent sends at most one window for
 * each of the two streams of a command, so a guest that sends more does not obey the protocol. UNSENT: bytes
 * for the guest at which callers are read no more. READS: reads from the guest before the callers get their
 * turn. */
enum {
    MOST_CALLERS = 256,
    DRAIN_NS = 2000000000,
    LOOK_AGAIN_MS = 1,
    UNREAD = 4 << 20,
    UNSENT = 4 << 20,
    READS = 64
};

/* A program of the host. channel: number of its channel, which is never reused; flooded: whether the guest
 * has sent more than UNREAD. */
struct caller {
    int fd;
    uint32_t channel;
    bool awaits, flooded;
    struct bytes in, out;
};

static struct caller callers[MOST_CALLERS];
static size_t count;
static struct bytes to_guest, from_guest, hello;
static int guest = -1;

/* The current move. mover: channel that requested it, 0 for none; waiting: socket to which the second
 * hypervisor will connect; second: its connection; drained: whether the first hypervisor has read everything;
 * limit: time until which it must have done so. */
static struct {
    uint32_t mover;
    int waiting, second;
    bool drained;
    uint64_t limit;
} move = {0, -1, -1, false, 0};

static void forward(struct bytes *to, uint32_t channel, const struct head *head, const char *payload) {
    if (!frame_put(to, channel, (enum kind)head->kind, payload, head->length))
        die("allocate", "frame");
}

/* Return a listening socket, or -1 on an error. */
static int try_to_listen(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    umask(0177);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int listen_at(const char *path) {
    if (strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        refuse("path too long", path);
    int fd = try_to_listen(path);
    if (fd < 0)
        die("listen", path);
    return fd;
}

static void shut(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void answer_mover(uint32_t channel, unsigned char refused) {
    for (size_t i = 0; i < count; i++)
        if (callers[i].channel == channel && !frame_put(&callers[i].out, 0, MOVED, &refused, 1))
            die("allocate", "answer");
}

static void stay(void) {
    shut(&move.waiting);
    shut(&move.second);
    move.mover = 0;
}

static void tell_hello(struct caller *c) {
    if (c->awaits && bytes_left(&hello) > 0) {
        c->awaits = false;
        if (!frame_put(&c->out, 0, HELLO, hello.data + hello.begin, bytes_left(&hello)))
            die("allocate", "hello");
    }
}

static void leave(size_t at) {
    const struct head drop = {.kind = DROP};
    forward(&to_guest, callers[at].channel, &drop, "");
    if (callers[at].channel == move.mover)
        stay();
    close(callers[at].fd);
    bytes_free(&callers[at].in);
    bytes_free(&callers[at].out);
    callers[at] = callers[--count];
}

static void keep_hello(const struct head *head, const char *payload) {
    const uint64_t now = now_ns();
    hello.begin = hello.end = 0;
    if (!bytes_put(&hello, &now, sizeof now) || !bytes_put(&hello, payload, head->length))
        die("allocate", "hello");
    for (size_t i = 0; i < count; i++)
        tell_hello(&callers[i]);
}

static void give_to_callers(const struct head *head, const char *payload) {
    if (head->kind == HELLO)
        keep_hello(head, payload);
    for (size_t i = 0; i < count; i++)
        if (callers[i].channel == head->channel) {
            callers[i].flooded |= bytes_left(&callers[i].out) > UNREAD;
            if (!callers[i].flooded)
                forward(&callers[i].out, 0, head, payload);
        }
}

/* Handle the frames that have arrived from the guest, in at most `reads` reads. Return false if the guest has
 * gone. */
static bool hear_guest(int from, int reads) {
    struct head head;
    const char *payload;
    ssize_t got = 1;
    int whole = 0;
    while (whole == 0 && reads-- > 0 && (got = bytes_read(from, &from_guest)) > 0)
        while ((whole = frame_take(&from_guest, &head, &payload)) > 0)
            give_to_callers(&head, payload);
    return whole == 0 && (got > 0 || (got < 0 && errno == EAGAIN));
}

/* Continue with the second hypervisor. Return false if it has not connected. */
static bool switch_over(void) {
    if (move.second < 0)
        return false;
    if (guest >= 0)
        hear_guest(guest, INT_MAX);
    shut(&guest);
    guest = move.second;
    move.second = -1;
    stay();
    return true;
}

static void handle_move(uint32_t channel, const struct head *head, const char *payload) {
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path] = "";
    bool done = true;
    if (head->kind == MOVE) {
        if (move.mover == 0 && head->length < sizeof path) {
            memcpy(path, payload, head->length);
            move.waiting = try_to_listen(path);
        }
        if (move.mover == 0 && move.waiting >= 0) {
            move.mover = channel;
            move.drained = false;
            move.limit = now_ns() + DRAIN_NS;
            return; /* answered by drain() */
        }
        done = false;
    } else if (move.mover != channel) {
        done = false;
    } else if (head->kind == SWITCH) {
        done = switch_over();
    } else {
        stay();
    }
    answer_mover(channel, done ? 0 : 1);
}

/* Answer MOVE if the first hypervisor has read everything that was sent to it. */
static void drain(void) {
    int unread = 0;
    if (move.mover == 0 || move.drained)
        return;
    move.drained = ioctl(guest, SIOCOUTQ, &unread) == 0 && unread == 0;
    if (!move.drained && now_ns() < move.limit)
        return;
    const uint32_t mover = move.mover;
    if (!move.drained)
        stay(); /* its guest reads nothing: it cannot be moved without loss */
    answer_mover(mover, move.drained ? 0 : 1);
}

/* Handle all frames of a caller. Return false if the caller has gone. */
static bool hear_caller(struct caller *c) {
    struct head head;
    const char *payload;
    ssize_t got = bytes_read(c->fd, &c->in);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return false;
    int whole;
    while ((whole = frame_take(&c->in, &head, &payload)) > 0) {
        if (head.kind == AWAIT)
            c->awaits = true;
        else if (head.kind >= MOVE)
            handle_move(c->channel, &head, payload);
        else
            forward(&to_guest, c->channel, &head, payload);
    }
    tell_hello(c);
    return whole == 0;
}

static void take_caller(int listening) {
    static uint32_t last;
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (count == MOST_CALLERS) {
        close(fd);
        return;
    }
    callers[count++] = (struct caller){.fd = fd, .channel = ++last};
}

static _Noreturn void multiplex(int listening) {
    struct pollfd asked[3 + MOST_CALLERS];
    for (;;) {
        const size_t n = count;
        const bool sends = move.mover == 0 && bytes_left(&to_guest) > 0;
        asked[0] = (struct pollfd){.fd = guest, .events = (short)(POLLIN | (sends ? POLLOUT : 0))};
        asked[1] = (struct pollfd){.fd = listening, .events = POLLIN};
        asked[2] = (struct pollfd){.fd = move.waiting, .events = POLLIN};
        /* The one who moves the guest is always heard, since the move ends the wait of all others. */
        const bool full = bytes_left(&to_guest) > UNSENT;
        for (size_t i = 0; i < n; i++) {
            const bool heard = !full || callers[i].channel == move.mover;
            asked[3 + i] = (struct pollfd){
                .fd = callers[i].fd,
                .events = (short)((heard ? POLLIN : 0) | (bytes_left(&callers[i].out) ? POLLOUT : 0))};
        }
        if (poll(asked, 3 + n, move.mover != 0 && !move.drained ? LOOK_AGAIN_MS : -1) < 0 && errno != EINTR)
            die("poll", "multiplex");
        if (asked[0].revents != 0 && !hear_guest(guest, READS))
            shut(&guest);
        if (asked[2].revents != 0 &&
            (move.second = accept4(move.waiting, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
            shut(&move.waiting);
        /* Backwards: who leaves gives its place to the last one. */
        for (size_t i = n; i-- > 0;) {
            const short heard = asked[3 + i].revents & ~POLLOUT;
            bool stays = heard == 0 || hear_caller(&callers[i]);
            if (!bytes_write(callers[i].fd, &callers[i].out) || !stays || callers[i].flooded)
                leave(i);
        }
        if (guest < 0 && (move.mover == 0 || !move.drained))
            _exit(0);
        drain();
        if (asked[1].revents != 0)
            take_caller(listening);
        if (move.mover == 0 && !bytes_write(guest, &to_guest))
            _exit(0);
    }
}

int multiplex_main(int argc, char **argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"connect", required_argument, NULL, 'c'},
                                            {"key", required_argument, NULL, 'k'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"listen", required_argument, NULL, 'l'},
                                            {"report-fd", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    const char *port = NULL, *line = NULL, *path = NULL, *key = NULL;
    long seconds = 60;
    int report_fd = -1;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'p':
            port = optarg;
            break;
        case 'c':
            line = optarg;
            break;
        case 'k':
            key = optarg;
            break;
        case 's':
            seconds = number(optarg, 86400, "--seconds");
            break;
        case 'l':
            path = optarg;
            break;
        case 'f':
            report_fd = (int)number(optarg, 1023, "--report-fd");
            break;
        default:
            refuse("unknown option", "multiplex");
        }
    }
    char **command = optind < argc ? argv + optind : NULL;
    if ((port != NULL) + (line != NULL) + (command != NULL) != 1 || path == NULL || report_fd < 0)
        refuse("multiplex needs --port, --connect or a command, and --listen and --report-fd", "multiplex");
    die_with_parent();
    signal(SIGPIPE, SIG_IGN);
    int listening = listen_at(path), waiting = port != NULL ? listen_at(port) : -1;
    report(report_fd, "{\"listening\": %" PRIu64 "}\n", now_ns());
    close(report_fd);
    if (waiting >= 0) {
        struct pollfd asked = {.fd = waiting, .events = POLLIN};
        while (poll(&asked, 1, -1) < 0 && errno == EINTR)
            continue;
        guest = accept4(waiting, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        close(waiting);
    } else {
        guest = command != NULL ? start_agent(command) : call_agent(line, key, seconds);
    }
    if (guest < 0)
        die("accept", "guest");
    multiplex(listening);
}
