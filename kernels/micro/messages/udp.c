/* Ping-pong over a UDP socket, with one datagram for each message. A message that does not arrive within half
   a second is lost, and the slice or verification fails. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "fail.h"
#include "sockets.h"

enum { LONGEST = 65507 }; /* 65535 less the headers of IPv4 and UDP */

static const double patience = 0.5; /* seconds */

static void open_socket(Pingpong *s, Spec *spec) {
    s->drop = spec_integer(spec, "drop", 0, 0, 1L << 30);
    sockets_open(s, spec, SOCK_DGRAM);
    struct timeval limit = {.tv_usec = (suseconds_t)(patience * 1e6)};
    if (s->socket >= 0 && setsockopt(s->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit))
        fail("udp: SO_RCVTIMEO: %s", strerror(errno));
}

static void send_message(Pingpong *s) {
    if (s->drop && s->world.rank == 1 && ++s->answers % s->drop == 0)
        return;
    while (send(s->socket, s->buffer, (size_t)s->bytes, MSG_NOSIGNAL) != s->bytes)
        if (errno != EINTR)
            fail("udp: send: %s", strerror(errno));
}

/* Receive a message. A blocking call ends with EAGAIN after SO_RCVTIMEO; a polling one checks the clock. */
static bool receive_message(Pingpong *s) {
    int flags = MSG_TRUNC | (s->spin ? MSG_DONTWAIT : 0);
    double end = s->spin ? now() + patience : 0;
    for (;;) {
        ssize_t count = recv(s->socket, s->buffer, (size_t)s->bytes, flags);
        if (count == s->bytes)
            return true;
        if (count >= 0)
            fail("udp: a datagram of %zd bytes instead of %ld", count, s->bytes);
        if (errno == EAGAIN && (!s->spin || now() > end))
            return false;
        if (errno != EINTR && errno != EAGAIN)
            fail("udp: recv: %s", strerror(errno));
    }
}

static void throw_late_ones_away(Pingpong *s) {
    while (recv(s->socket, s->buffer, (size_t)s->bytes, MSG_DONTWAIT) >= 0)
        ;
}

static bool travel(Pingpong *s, long trips) {
    return pingpong_travel(s, trips, send_message, receive_message);
}

static const Carrier udp = {.most_bytes = LONGEST,
                            .default_bytes = 8,
                            .open = open_socket,
                            .travel = travel,
                            .send = send_message,
                            .receive = receive_message,
                            .settle = throw_late_ones_away,
                            .close = sockets_close};

static void *prepare(Spec *spec, const World *world) {
    return pingpong_prepare(spec, world, &udp);
}

static const Kernel udp_kernel = {"udp", prepare, pingpong_slice, pingpong_verify, pingpong_release};
LISTED(udp_kernel)
