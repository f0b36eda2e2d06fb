/* nm-probe ask --address A --port N --period NS --count N --tcp-every K --linger NS --out FILE: sends a
 * request over UDP each period, at absolute times, and every K periods one over TCP. Ends after N periods, or
 * when it is asked to, and then waits for late answers: up to NS nanoseconds, or until none has come for a
 * tenth of that and the last requests have been answered.
 *
 * It wakes once a period, to send, and reads answers at every HEAR_EVERY-th, so that it costs little: answers
 * over UDP have the kernel's time stamp; those over TCP are seen when they are read. Writes to FILE, by
 * CLOCK_MONOTONIC in nanoseconds:
 * udp|tcp NUMBER SENT FIRST-ANSWER LAST-ANSWER ANSWERS    (0 0 0 where there is none)
 * broken TIME                                             (the TCP connection, if it was) */
#include "fail.h"
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_REQUESTS = 2000000,
    CONNECT_SECONDS = 20,
    MOST_HEARD = 16,
    MOST_NUMBERS = 64,
    HEAR_EVERY = 4, /* periods: answers wait in the socket, with their time stamps */
};

struct request {
    int64_t sent, answered, last;
    uint32_t answers;
};

/* One way of asking. fd: -1 where it is not used any more. */
struct way {
    const char *name;
    int fd;
    struct request *requests;
    size_t count;
};

static int64_t broken, heard; /* when the connection broke, and when the last answer was noted */

static int connected(int kind, const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct timeval limit = {.tv_sec = CONNECT_SECONDS};
    const int on = 1;
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail("%s is no IPv4 address", address);
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
        fail("%s:%d does not answer: %s", address, port, strerror(errno));
    if (kind == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    else if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
        fail("time stamps: %s", strerror(errno));
    return fd;
}

static void note_answer(struct way *way, uint64_t number, int64_t when) {
    if (number >= way->count)
        return; /* not ours */
    struct request *r = &way->requests[number];
    heard = now_ns();
    if (r->answers++ == 0)
        r->answered = when;
    r->last = when;
}

static void send_one(struct way *way) {
    uint64_t number = way->count;
    way->requests[way->count++] = (struct request){.sent = now_ns()};
    if (way->fd >= 0)
        send(way->fd, &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* By how much CLOCK_REALTIME, in which the kernel stamps, is ahead of CLOCK_MONOTONIC. */
static int64_t ahead(void) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    return (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - now_ns();
}

static int64_t stamp_of(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
            return (int64_t)stamp.tv_sec * 1000000000 + stamp.tv_nsec - ahead();
        }
    return now_ns();
}

/* An answer holds the numbers of one or several requests. */
static void hear_datagrams(struct way *way) {
    static uint64_t numbers[MOST_HEARD][MOST_NUMBERS];
    static char control[MOST_HEARD][128];
    struct iovec pieces[MOST_HEARD];
    struct mmsghdr messages[MOST_HEARD];
    for (int got = MOST_HEARD; got == MOST_HEARD;) {
        for (size_t i = 0; i < MOST_HEARD; i++) {
            pieces[i] = (struct iovec){numbers[i], sizeof numbers[i]};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i],
                                                  .msg_iovlen = 1,
                                                  .msg_control = control[i],
                                                  .msg_controllen = sizeof control[i]};
        }
        /* Nothing more: -1. A refused port shows as requests without answers. */
        got = recvmmsg(way->fd, messages, MOST_HEARD, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            const int64_t when = stamp_of(&messages[i].msg_hdr);
            for (size_t n = 0; n < messages[i].msg_len / sizeof **numbers; n++)
                note_answer(way, numbers[i][n], when);
        }
    }
}

static void hear_stream(struct way *way) {
    static char held[REQUEST_BYTES];
    static size_t have;
    while (way->fd >= 0) {
        ssize_t got = recv(way->fd, held + have, sizeof held - have, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            broken = now_ns();
            close(way->fd);
            way->fd = -1;
            return;
        }
        have += (size_t)got;
        if (have == sizeof held) {
            uint64_t number;
            memcpy(&number, held, sizeof number);
            note_answer(way, number, now_ns());
            have = 0;
        }
    }
}

static bool all_answered(const struct way *way) {
    for (size_t i = 0; i < way->count; i++)
        if (way->requests[i].answers == 0)
            return way->fd < 0;
    return true;
}

static bool last_answered(const struct way *way) {
    return way->fd < 0 || way->count == 0 || way->requests[way->count - 1].answers > 0;
}

static void write_all(const char *path, const struct way *ways, size_t count) {
    FILE *out = fopen(path, "we");
    if (out == NULL)
        fail("%s: %s", path, strerror(errno));
    for (size_t w = 0; w < count; w++)
        for (size_t i = 0; i < ways[w].count; i++) {
            const struct request *r = &ways[w].requests[i];
            fprintf(out, "%s %zu %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu32 "\n", ways[w].name, i, r->sent,
                    r->answered, r->last, r->answers);
        }
    if (broken != 0)
        fprintf(out, "broken %" PRId64 "\n", broken);
    if (fclose(out) != 0)
        fail("%s: %s", path, strerror(errno));
}

int ask_main(int argc, char **argv) {
    static const struct option options[] = {
        {"address", required_argument, NULL, 'a'},   {"port", required_argument, NULL, 'p'},
        {"period", required_argument, NULL, 'n'},    {"count", required_argument, NULL, 'c'},
        {"tcp-every", required_argument, NULL, 't'}, {"linger", required_argument, NULL, 'l'},
        {"out", required_argument, NULL, 'o'},       {NULL, 0, NULL, 0}};
    const char *address = NULL, *out = NULL;
    int port = -1;
    int64_t period = 0, count = 0, every = 0, linger = 0;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'a':
            address = optarg;
            break;
        case 'p':
            port = (int)number(optarg, 1, 65535, "--port");
            break;
        case 'n':
            period = number(optarg, 50000, 10000000000, "--period");
            break;
        case 'c':
            count = number(optarg, 1, MOST_REQUESTS, "--count");
            break;
        case 't':
            every = number(optarg, 0, MOST_REQUESTS, "--tcp-every");
            break;
        case 'l':
            linger = number(optarg, 0, 60000000000, "--linger");
            break;
        case 'o':
            out = optarg;
            break;
        default:
            fail("ask: unknown option");
        }
    }
    if (address == NULL || out == NULL || port < 0 || period == 0 || count == 0)
        fail("ask needs --address, --port, --period, --count and --out");
    struct way ways[] = {
        {.name = "udp", .fd = connected(SOCK_DGRAM, address, port)},
        {.name = "tcp", .fd = every > 0 ? connected(SOCK_STREAM, address, port) : -1},
    };
    for (size_t w = 0; w < 2; w++)
        if ((ways[w].requests = calloc((size_t)count, sizeof *ways[w].requests)) == NULL)
            fail("no memory for %" PRId64 " requests", count);
    end_when_asked();
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    printf("{\"asking\": %" PRId64 "}\n", now_ns());
    fflush(stdout);
    int64_t next = now_ns();
    for (int64_t i = 0; i < count && !asked_to_end(); i++) {
        if (i % HEAR_EVERY == 0) {
            hear_datagrams(&ways[0]);
            hear_stream(&ways[1]);
        }
        send_one(&ways[0]);
        if (every > 0 && i % every == 0)
            send_one(&ways[1]);
        const int64_t now = now_ns();
        next = next + period > now ? next + period : now; /* a late one is not made up for by a burst */
        sleep_until(next);
    }
    for (const int64_t end = now_ns() + linger; now_ns() < end;) {
        hear_datagrams(&ways[0]);
        hear_stream(&ways[1]);
        if (all_answered(&ways[0]) && all_answered(&ways[1]))
            break;
        if (last_answered(&ways[0]) && last_answered(&ways[1]) && now_ns() - heard > linger / 10)
            break;
        usleep(1000);
    }
    write_all(out, ways, 2);
    return 0;
}
