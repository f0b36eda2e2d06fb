/* nm-probe ask --address A --port N --period NS [--rest NS] --time NS [--tcp-every NS] [--most N] --linger NS
 * --out FILE: the client. It sends requests over UDP and, with --tcp-every, also over TCP at this interval.
 * It stops after --time, on SIGTERM, or when it has sent --most requests (default: MOST_REQUESTS) over one of
 * them, which it keeps in memory. Then it waits for late answers: for at most --linger, or until the last
 * requests have been answered and no answer has come for a tenth of --linger.
 *
 * While answers come, it sends a request every --rest (default: --period). If no answer has come for
 * SILENT_AFTER times --rest, it sends one every --period until the next answer, so that it wakes up often
 * only during a silence. Every wake-up reads answers and sends a request. The time of an answer is the
 * kernel's time stamp of its arrival.
 *
 * FILE gets a line for each request, with times of CLOCK_MONOTONIC in nanoseconds:
 * udp|tcp NUMBER SENT FIRST-ANSWER LAST-ANSWER ANSWERS STEP
 * Without an answer the three columns after SENT are 0. STEP is the time until the next request was due. A
 * line "cpu NS" follows, with the CPU time that the client took for sending them and reading answers. If the
 * TCP connection broke, a line "broken TIME" follows; if there was no room for more requests, a last line
 * "full TIME". */
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
    FIRST_REQUESTS = 4096,
    CONNECT_SECONDS = 20,
    MOST_HEARD = 16,
    MOST_NUMBERS = 64,
};

#define SILENT_AFTER 1.5

struct request {
    int64_t sent, answered, last, step;
    uint32_t answers;
};

/* A transport and the requests that were sent over it. fd: -1 if it is not or no longer used; room: number of
 * requests for which there is memory; heard: time of the last answer. */
struct way {
    const char *name;
    int fd;
    struct request *requests;
    size_t count, room;
    int64_t heard;
};

static int64_t broken; /* time when the TCP connection broke; 0 if it did not */
static int64_t full;   /* time when there was no room for a request; 0 if there always was */

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
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
        fail("time stamps: %s", strerror(errno));
    return fd;
}

static void note_answer(struct way *way, uint64_t number, int64_t when) {
    if (number >= way->count)
        return; /* not an answer to this client */
    struct request *r = &way->requests[number];
    if (when > way->heard)
        way->heard = when;
    if (r->answers++ == 0)
        r->answered = when;
    r->last = when;
}

/* Return the CPU time of this process in nanoseconds. */
static int64_t cpu_time(void) {
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}

/* Return whether there is room for a further request. The memory grows with the requests, since --time may be
 * a day, and most moves take seconds. */
static bool has_room(struct way *way, size_t most) {
    if (way->count < way->room)
        return true;
    size_t room = way->room == 0 ? FIRST_REQUESTS : 2 * way->room;
    room = room < most ? room : most;
    if (room <= way->count)
        return false;
    struct request *larger = realloc(way->requests, room * sizeof *larger);
    if (larger == NULL)
        return false;
    way->requests = larger;
    way->room = room;
    return true;
}

static void send_one(struct way *way, int64_t step) {
    uint64_t number = way->count;
    way->requests[way->count++] = (struct request){.sent = now_ns(), .step = step};
    if (way->fd >= 0)
        send(way->fd, &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Return CLOCK_REALTIME, by which the kernel stamps answers, minus CLOCK_MONOTONIC, in nanoseconds. */
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

/* Read all UDP answers. An answer holds the numbers of one or several requests. */
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
    static char held[REQUEST_BYTES], control[128];
    static size_t have;
    while (way->fd >= 0) {
        struct iovec piece = {held + have, sizeof held - have};
        struct msghdr message = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(way->fd, &message, MSG_DONTWAIT);
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
            note_answer(way, number, stamp_of(&message));
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

static void write_all(const char *path, const struct way *ways, size_t count, int64_t cpu) {
    FILE *out = fopen(path, "we");
    if (out == NULL)
        fail("%s: %s", path, strerror(errno));
    for (size_t w = 0; w < count; w++)
        for (size_t i = 0; i < ways[w].count; i++) {
            const struct request *r = &ways[w].requests[i];
            fprintf(out, "%s %zu %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu32 " %" PRId64 "\n", ways[w].name,
                    i, r->sent, r->answered, r->last, r->answers, r->step);
        }
    fprintf(out, "cpu %" PRId64 "\n", cpu);
    if (broken != 0)
        fprintf(out, "broken %" PRId64 "\n", broken);
    if (full != 0)
        fprintf(out, "full %" PRId64 "\n", full);
    if (fclose(out) != 0)
        fail("%s: %s", path, strerror(errno));
}

/* Send requests until `end`, until SIGTERM, or until `most` were sent over one transport. */
static void ask(struct way *ways, int64_t period, int64_t rest, int64_t tcp_every, int64_t end,
                size_t most_sent) {
    const int64_t most = (int64_t)(SILENT_AFTER * (double)rest);
    int64_t next = now_ns(), next_stream = next;
    ways[0].heard = ways[1].heard = next;
    for (int64_t now = next; now < end && !asked_to_end(); now = now_ns()) {
        hear_datagrams(&ways[0]);
        hear_stream(&ways[1]);
        if (!has_room(&ways[0], most_sent) || !has_room(&ways[1], most_sent)) {
            full = now;
            return;
        }
        const int64_t step = now - ways[0].heard > most ? period : rest;
        send_one(&ways[0], step);
        if (tcp_every > 0 && now >= next_stream) {
            send_one(&ways[1], tcp_every);
            /* Counted from when it was due: otherwise a wake-up that is a little earlier than the last would
             * send none. */
            next_stream = next_stream + tcp_every > now ? next_stream + tcp_every : now + tcp_every;
        }
        next = next + step > now ? next + step : now; /* after a delay, requests are not sent in a burst */
        sleep_until(next);
    }
}

/* TCP sends a request that was lost again after up to as long as it has waited already. */
static void await_answers(struct way *ways, int64_t linger) {
    const int64_t begin = now_ns(), silent = ways[1].fd < 0 ? 0 : begin - ways[1].heard;
    for (const int64_t end = begin + silent + linger; now_ns() < end; usleep(1000)) {
        hear_datagrams(&ways[0]);
        hear_stream(&ways[1]);
        if (all_answered(&ways[0]) && all_answered(&ways[1]))
            return;
        const int64_t heard = ways[0].heard > ways[1].heard ? ways[0].heard : ways[1].heard;
        if (last_answered(&ways[0]) && last_answered(&ways[1]) && now_ns() - heard > linger / 10)
            return;
    }
}

int ask_main(int argc, char **argv) {
    static const struct option options[] = {
        {"address", required_argument, NULL, 'a'},   {"port", required_argument, NULL, 'p'},
        {"period", required_argument, NULL, 'n'},    {"rest", required_argument, NULL, 'r'},
        {"time", required_argument, NULL, 'd'},      {"linger", required_argument, NULL, 'l'},
        {"tcp-every", required_argument, NULL, 't'}, {"most", required_argument, NULL, 'm'},
        {"out", required_argument, NULL, 'o'},       {NULL, 0, NULL, 0}};
    const char *address = NULL, *out = NULL;
    int port = -1;
    int64_t period = 0, rest = 0, time = 0, every = 0, linger = 0, most = MOST_REQUESTS;
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
        case 'r':
            rest = number(optarg, 50000, 10000000000, "--rest");
            break;
        case 'd':
            time = number(optarg, 1, 100000000000000, "--time"); /* more than a day */
            break;
        case 'm':
            most = number(optarg, 1, MOST_REQUESTS, "--most");
            break;
        case 't':
            every = number(optarg, 50000, 10000000000, "--tcp-every");
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
    if (address == NULL || out == NULL || port < 0 || period == 0 || time == 0)
        fail("ask needs --address, --port, --period, --time and --out");
    if (rest < period)
        rest = period;
    struct way ways[] = {
        {.name = "udp", .fd = connected(SOCK_DGRAM, address, port)},
        {.name = "tcp", .fd = every > 0 ? connected(SOCK_STREAM, address, port) : -1},
    };
    for (size_t w = 0; w < 2; w++)
        if (!has_room(&ways[w], (size_t)most))
            fail("no memory for requests");
    end_when_asked();
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    printf("{\"asking\": %" PRId64 "}\n", now_ns());
    fflush(stdout);
    const int64_t before = cpu_time();
    ask(ways, period, rest, every, now_ns() + time, (size_t)most);
    const int64_t cpu = cpu_time() - before;
    await_answers(ways, linger);
    write_all(out, ways, 2, cpu);
    return 0;
}
