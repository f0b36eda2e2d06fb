/* nm-probe answer --port N: the responder. It sends every request back to its sender, over UDP and over TCP,
 * until SIGTERM. It prints a line when it listens.
 *
 * UDP requests that have queued up, for example during a standstill, are answered in one wake-up, with one
 * datagram to each client that holds all of its requests. */
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

enum { MOST_CLIENTS = 8, BUFFER = 4096, MOST_TOGETHER = 64 };

/* Bind to a port. If a former responder was just killed, its child keeps the port for a moment, so this tries
 * for two seconds. */
static bool bound(int fd, int port) {
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int64_t end = now_ns() + 2000000000;
    while (bind(fd, (const struct sockaddr *)&any, sizeof any) != 0) {
        if (errno != EADDRINUSE || asked_to_end() || now_ns() > end)
            return false;
        sleep_until(now_ns() + 1000000);
    }
    return true;
}

static int listen_on(int port, int kind) {
    const int on = 1;
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || !bound(fd, port) ||
        (kind == SOCK_STREAM && listen(fd, MOST_CLIENTS) != 0))
        fail("port %d: %s", port, strerror(errno));
    return fd;
}

static bool same(const struct sockaddr_in *a, const struct sockaddr_in *b) {
    return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

/* Send `count` requests back. Consecutive requests of one client are put into one datagram. */
static void send_back(int fd, const struct sockaddr_in *from, const struct iovec *requests, size_t count) {
    for (size_t i = 0, next; i < count; i = next) {
        struct iovec pieces[MOST_TOGETHER];
        for (next = i; next < count && same(&from[next], &from[i]); next++)
            pieces[next - i] = requests[next];
        struct sockaddr_in to = from[i];
        const struct msghdr answer = {
            .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = pieces, .msg_iovlen = next - i};
        sendmsg(fd, &answer, MSG_DONTWAIT);
    }
}

static void echo_datagrams(int fd) {
    static uint64_t data[MOST_TOGETHER];
    struct sockaddr_in from[MOST_TOGETHER];
    struct iovec pieces[MOST_TOGETHER];
    struct mmsghdr messages[MOST_TOGETHER];
    while (!asked_to_end()) {
        for (unsigned i = 0; i < MOST_TOGETHER; i++) {
            pieces[i] = (struct iovec){&data[i], sizeof data[i]};
            messages[i].msg_hdr = (struct msghdr){
                .msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &pieces[i], .msg_iovlen = 1};
        }
        const int got = recvmmsg(fd, messages, MOST_TOGETHER, MSG_WAITFORONE, NULL);
        if (got <= 0)
            continue;
        for (int i = 0; i < got; i++)
            pieces[i].iov_len = messages[i].msg_len;
        send_back(fd, from, pieces, (size_t)got);
    }
}

/* Return false if the client has closed the connection. */
static bool echo_stream(int fd) {
    char data[BUFFER];
    ssize_t got = read(fd, data, sizeof data);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    /* The client reads answers as it sends requests, so an answer fits into the socket's buffer. */
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
