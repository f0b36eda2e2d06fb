/* nm-probe answer --port N: sends every request back to where it came from, over UDP and over TCP, until it
 * is ended. Prints a line when it listens. */
#include "fail.h"
#include "probe.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CLIENTS = 8, BUFFER = 4096 };

static int listen_on(int port, int kind) {
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int on = 1;
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&any, sizeof any) != 0 ||
        (kind == SOCK_STREAM && listen(fd, MOST_CLIENTS) != 0))
        fail("port %d: %s", port, strerror(errno));
    return fd;
}

/* Two system calls a request: this is what the probe costs the instance. */
static void echo_datagrams(int fd) {
    char data[BUFFER];
    while (!asked_to_end()) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t got = recvfrom(fd, data, sizeof data, 0, (struct sockaddr *)&from, &size);
        if (got >= 0)
            sendto(fd, data, (size_t)got, MSG_DONTWAIT, (struct sockaddr *)&from, size);
    }
}

/* false: the client has gone. */
static bool echo_stream(int fd) {
    char data[BUFFER];
    ssize_t got = read(fd, data, sizeof data);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    /* An answer is never larger than what the client has still to read, so that it fits the buffer. */
    return got > 0 && write(fd, data, (size_t)got) == got;
}

static void echo_streams(int listening) {
    struct pollfd watched[1 + MOST_CLIENTS] = {{.fd = listening, .events = POLLIN}};
    nfds_t count = 1;
    while (!asked_to_end()) {
        if (poll(watched, count, -1) < 0)
            continue;
        for (nfds_t i = count; i-- > 1;)
            if (watched[i].revents != 0 && !echo_stream(watched[i].fd)) {
                close(watched[i].fd);
                watched[i] = watched[--count];
            }
        if (watched[0].revents == 0)
            continue;
        const int on = 1;
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && count == 1 + MOST_CLIENTS)
            close(fd);
        else if (fd >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            watched[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
}

int answer_main(int argc, char **argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
    int port = -1;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        if (option != 'p')
            fail("answer: unknown option");
        port = (int)number(optarg, 1, 65535, "--port");
    }
    if (port < 0)
        fail("answer needs --port");
    end_when_asked();
    const int datagrams = listen_on(port, SOCK_DGRAM), streams = listen_on(port, SOCK_STREAM);
    const pid_t parent = getpid(), child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() == parent)
            echo_streams(streams);
        return 0;
    }
    printf("{\"listening\": %" PRId64 "}\n", now_ns());
    fflush(stdout);
    echo_datagrams(datagrams);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
