/* nm-box trip [--near PATH --far PATH] --address IPV4 --cpus A,B: measures how long a small message takes
 * over a TCP connection from the network namespace --near to the address, which is in --far; both default to
 * the current one. Two processes, each on its own CPU, poll their sockets as MPI libraries do. Prints one
 * JSON object with the seconds of half a round trip, in the best batch of round trips. */
#define _GNU_SOURCE
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 8, BATCH = 32, WARM_UP = 64 };
/* A batch ends after BATCH_NS, and the measurement with the first batch that ends after ALL_NS. Both are
 * times, not counts, since emulated links may have any delay. */
static const uint64_t BATCH_NS = 5000000, ALL_NS = 30000000;
static const unsigned LIMIT_SECONDS = 20;

static struct sockaddr_in address_of(const char *text) {
    struct sockaddr_in found = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, text, &found.sin_addr) != 1)
        refuse("not an IPv4 address", text);
    return found;
}

/* Create a socket in a network namespace, to which it then belongs. */
static int socket_in(const char *netns) {
    int on = 1;
    if (netns != NULL)
        join_namespace(open_namespace(netns), CLONE_NEWNET, netns);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        die("socket", netns != NULL ? netns : "here");
    return fd;
}

static void give(int fd, const char *message) {
    if (send(fd, message, BYTES, MSG_NOSIGNAL) != BYTES)
        die("send", "trip");
}

/* Receive a message by polling. Return false if the other end has closed the connection. */
static bool take(int fd, char *message) {
    for (size_t done = 0; done < BYTES;) {
        ssize_t count = recv(fd, message + done, BYTES - done, MSG_DONTWAIT);
        if (count > 0)
            done += (size_t)count;
        else if (count == 0)
            return false;
        else if (errno != EAGAIN && errno != EINTR)
            die("recv", "trip");
    }
    return true;
}

static void there_and_back(int fd) {
    char message[BYTES] = "message";
    give(fd, message);
    if (!take(fd, message))
        refuse("the other end has closed the connection", "trip");
}

/* Return the nanoseconds of one round trip in the best batch. */
static double best_round(int fd) {
    double best = 0;
    uint64_t begin = now_ns(), now = begin;
    for (int i = 0; i < WARM_UP && now - begin < BATCH_NS; i++, now = now_ns())
        there_and_back(fd);
    for (begin = now; now - begin < ALL_NS;) {
        uint64_t start = now;
        int trips = 0;
        for (; trips < BATCH && now - start < BATCH_NS; trips++, now = now_ns())
            there_and_back(fd);
        double each = (double)(now - start) / trips;
        best = best == 0 || each < best ? each : best;
    }
    return best;
}

static _Noreturn void echo(int fd, const char *cpu) {
    char message[BYTES];
    die_with_parent();
    alarm(LIMIT_SECONDS); /* the loops poll without end */
    pin(cpu);
    while (take(fd, message))
        give(fd, message);
    _exit(0);
}

int trip_main(int argc, char **argv) {
    static const struct option options[] = {{"near", required_argument, NULL, 'n'},
                                            {"far", required_argument, NULL, 'f'},
                                            {"address", required_argument, NULL, 'a'},
                                            {"cpus", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    const char *near = NULL, *far = NULL, *address = NULL;
    char *cpus = NULL;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        if (option == 'n')
            near = optarg;
        else if (option == 'f')
            far = optarg;
        else if (option == 'a')
            address = optarg;
        else if (option == 'c')
            cpus = optarg;
        else
            refuse("unknown option", "trip");
    }
    char *other = cpus != NULL ? strchr(cpus, ',') : NULL;
    if (address == NULL || other == NULL || optind < argc)
        refuse("trip needs --address and two --cpus", "trip");
    *other++ = '\0';
    alarm(LIMIT_SECONDS);
    struct sockaddr_in at = address_of(address);
    socklen_t length = sizeof at;
    int listening = socket_in(far);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) != 0 || listen(listening, 1) != 0 ||
        getsockname(listening, (struct sockaddr *)&at, &length) != 0)
        die("listen", address);
    int fd = socket_in(near);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        die("connect", address);
    int taken = accept4(listening, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (taken < 0 || setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        die("accept", address);
    pid_t child = fork();
    if (child < 0)
        die("fork", "trip");
    if (child == 0) {
        close(fd);
        echo(taken, other);
    }
    close(taken);
    pin(cpus);
    printf("{\"seconds\": %.4g}\n", best_round(fd) / 2e9);
    return 0; /* the child ends with this process */
}
