/* A socket between ranks 0 and 1. MPI is only used to exchange the addresses. */
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fail.h"

typedef struct sockaddr_in Address;

static int checked(int result, const char *kernel, const char *what) {
    if (result < 0)
        fail("%s: %s: %s", kernel, what, strerror(errno));
    return result;
}

static Address address_of(const char *interface, const char *kernel) {
    struct ifaddrs *all;
    Address found = {0};
    checked(getifaddrs(&all), kernel, "getifaddrs");
    for (struct ifaddrs *at = all; at && !found.sin_family; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && strcmp(at->ifa_name, interface) == 0 &&
            at->ifa_flags & IFF_UP)
            memcpy(&found, at->ifa_addr, sizeof found);
    freeifaddrs(all);
    if (!found.sin_family)
        fail("%s: interface '%s' has no IPv4 address or is down", kernel, interface);
    found.sin_port = 0; /* any that is free */
    return found;
}

static bool same(const Address *a, const Address *b) {
    return a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port;
}

/* Accept the connection of rank 0. Connections from other addresses are closed. */
static int accept_from(int listening, const Address *peer, const char *kernel) {
    for (;;) {
        Address from;
        socklen_t length = sizeof from;
        int connection = accept4(listening, (struct sockaddr *)&from, &length, SOCK_CLOEXEC);
        if (connection < 0 && errno == EINTR)
            continue;
        checked(connection, kernel, "accept");
        if (same(&from, peer))
            return connection;
        close(connection);
    }
}

void sockets_open(Pingpong *s, Spec *spec, int type) {
    static const char *const waits[] = {"block", "spin"};
    const char *kernel = spec->name;
    s->spin = spec_choice(spec, "wait", waits, 2, 0) == 1;
    if (s->world.rank > 1)
        return;
    Address mine = address_of(s->world.interface, kernel), peer;
    socklen_t length = sizeof mine;
    s->socket = checked(socket(AF_INET, type | SOCK_CLOEXEC, 0), kernel, "socket");
    checked(bind(s->socket, (struct sockaddr *)&mine, sizeof mine), kernel, "bind");
    checked(getsockname(s->socket, (struct sockaddr *)&mine, &length), kernel, "getsockname");
    bool listens = type == SOCK_STREAM && s->world.rank == 1;
    if (listens)
        checked(listen(s->socket, 1), kernel, "listen");
    MPI(MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, s->peer, 0, &peer, sizeof peer, MPI_BYTE, s->peer, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (listens) {
        int connection = accept_from(s->socket, &peer, kernel);
        close(s->socket);
        s->socket = connection;
    } else
        checked(connect(s->socket, (struct sockaddr *)&peer, sizeof peer), kernel, "connect");
}

void sockets_close(Pingpong *s) {
    if (s->socket >= 0)
        close(s->socket);
}
