/* Ping-pong over a TCP socket, the layer below MPI over TCP. It sets TCP_NODELAY, as MPI libraries do. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "fail.h"
#include "sockets.h"

static void open_socket(Pingpong *s, Spec *spec) {
    sockets_open(s, spec, SOCK_STREAM);
    int on = 1;
    if (s->socket >= 0 && setsockopt(s->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        fail("tcp: TCP_NODELAY: %s", strerror(errno));
}

static void send_message(Pingpong *s) {
    for (long done = 0; done < s->bytes;) {
        ssize_t count = send(s->socket, s->buffer + done, (size_t)(s->bytes - done), MSG_NOSIGNAL);
        if (count > 0)
            done += count;
        else if (errno != EINTR)
            fail("tcp: send: %s", strerror(errno));
    }
}

static bool receive_message(Pingpong *s) {
    int flags = s->spin ? MSG_DONTWAIT : MSG_WAITALL;
    for (long done = 0; done < s->bytes;) {
        ssize_t count = recv(s->socket, s->buffer + done, (size_t)(s->bytes - done), flags);
        if (count > 0)
            done += count;
        else if (count == 0)
            fail("tcp: rank %d has closed the connection", s->peer);
        else if (errno != EINTR && errno != EAGAIN)
            fail("tcp: recv: %s", strerror(errno));
    }
    return true;
}

static bool travel(Pingpong *s, long trips) {
    return pingpong_travel(s, trips, send_message, receive_message);
}

static const Carrier tcp = {.least_bytes = 1, /* a stream has no empty messages */
                            .most_bytes = 1L << 30,
                            .default_bytes = 8,
                            .open = open_socket,
                            .travel = travel,
                            .send = send_message,
                            .receive = receive_message,
                            .close = sockets_close};

static void *prepare(Spec *spec, const World *world) {
    return pingpong_prepare(spec, world, &tcp);
}

static const Kernel tcp_kernel = {"tcp", prepare, pingpong_slice, pingpong_verify, pingpong_release};
LISTED(tcp_kernel)
