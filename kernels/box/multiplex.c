/* nm-box multiplex --port PATH | --connect LINE [--key FILE] [--seconds N] --listen PATH --report-fd N: holds
 * the host's end of the line to a guest's agent. QEMU connects to the port; an agent that listens is called
 * at tcp:ADDRESS:PORT or a socket that leads to it, until it answers or that many seconds have passed.
 * Programs of the host connect to the socket, which only our user may, and each gets a channel of its own.
 * Ends when the guest does, or the thread that started us. */
#define _GNU_SOURCE
#include "box.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_CALLERS = 256 };

/* A program of the host. channel: its own, never given twice. */
struct caller {
    int fd;
    uint32_t channel;
    bool awaits;
    struct bytes in, out;
};

static struct caller callers[MOST_CALLERS];
static size_t count;
static struct bytes to_guest, from_guest, hello;

static void forward(struct bytes *to, uint32_t channel, const struct head *head, const char *payload) {
    if (!frame_put(to, channel, (enum kind)head->kind, payload, head->length))
        die("allocate", "frame");
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        refuse("path too long", path);
    strcpy(address.sun_path, path);
    umask(0177);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 64) != 0)
        die("listen", path);
    return fd;
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
    close(callers[at].fd);
    bytes_free(&callers[at].in);
    bytes_free(&callers[at].out);
    callers[at] = callers[--count];
}

/* false: it has gone. */
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
        else
            forward(&to_guest, c->channel, &head, payload);
    }
    tell_hello(c);
    return whole == 0;
}

static void keep_hello(const struct head *head, const char *payload) {
    const uint64_t now = now_ns();
    hello.begin = hello.end = 0;
    if (!bytes_put(&hello, &now, sizeof now) || !bytes_put(&hello, payload, head->length))
        die("allocate", "hello");
    for (size_t i = 0; i < count; i++)
        tell_hello(&callers[i]);
}

/* false: the guest has gone. */
static bool hear_guest(int guest) {
    struct head head;
    const char *payload;
    ssize_t got = bytes_read(guest, &from_guest);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return false;
    int whole;
    while ((whole = frame_take(&from_guest, &head, &payload)) > 0) {
        if (head.kind == HELLO)
            keep_hello(&head, payload);
        for (size_t i = 0; i < count; i++)
            if (callers[i].channel == head.channel)
                forward(&callers[i].out, 0, &head, payload);
    }
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

static _Noreturn void multiplex(int guest, int listening) {
    struct pollfd asked[2 + MOST_CALLERS];
    for (;;) {
        size_t n = count;
        asked[0] =
            (struct pollfd){.fd = guest, .events = (short)(POLLIN | (bytes_left(&to_guest) ? POLLOUT : 0))};
        asked[1] = (struct pollfd){.fd = listening, .events = POLLIN};
        for (size_t i = 0; i < n; i++)
            asked[2 + i] = (struct pollfd){
                .fd = callers[i].fd, .events = (short)(POLLIN | (bytes_left(&callers[i].out) ? POLLOUT : 0))};
        if (poll(asked, 2 + n, -1) < 0 && errno != EINTR)
            die("poll", "multiplex");
        if (asked[0].revents != 0 && !hear_guest(guest))
            _exit(0);
        /* Backwards: who leaves gives its place to the last one. */
        for (size_t i = n; i-- > 0;) {
            bool stays = asked[2 + i].revents == 0 || hear_caller(&callers[i]);
            if (!bytes_write(callers[i].fd, &callers[i].out) || !stays)
                leave(i);
        }
        if (asked[1].revents != 0)
            take_caller(listening);
        if (!bytes_write(guest, &to_guest))
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
    if ((port == NULL) == (line == NULL) || path == NULL || report_fd < 0)
        refuse("multiplex needs --port (or --connect), --listen and --report-fd", "multiplex");
    die_with_parent();
    signal(SIGPIPE, SIG_IGN);
    int listening = listen_at(path), waiting = port != NULL ? listen_at(port) : -1, guest = -1;
    report(report_fd, "{\"listening\": %" PRIu64 "}\n", now_ns());
    close(report_fd);
    if (waiting >= 0) {
        struct pollfd asked = {.fd = waiting, .events = POLLIN};
        while (poll(&asked, 1, -1) < 0 && errno == EINTR)
            continue;
        guest = accept4(waiting, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        close(waiting);
    } else {
        guest = call_agent(line, key, seconds);
    }
    if (guest < 0)
        die("accept", "guest");
    multiplex(guest, listening);
}
