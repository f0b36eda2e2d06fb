#include "ring.h"
#include "fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { JOIN_SECONDS = 60, LOOK_AGAIN_MS = 20, END_MS = 5000 };

static volatile sig_atomic_t ending;

static void note(int number) {
    (void)number;
    ending = 1;
}

static void wait_ms(int ms) {
    poll(NULL, 0, ms);
}

static int made_socket(void) {
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static struct sockaddr_in place(const char *address, int port) {
    struct sockaddr_in found = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &found.sin_addr) != 1)
        fail("%s is no IPv4 address", address);
    return found;
}

static int connected(const char *address, int port) {
    const struct sockaddr_in to = place(address, port);
    for (int tries = JOIN_SECONDS * 1000 / LOOK_AGAIN_MS; tries > 0; tries--) {
        int fd = made_socket();
        if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
            return fd;
        close(fd);
        wait_ms(LOOK_AGAIN_MS);
    }
    fail("no rank answers at %s:%d: %s", address, port, strerror(errno));
}

static int accepted(int listening) {
    struct pollfd asked = {.fd = listening, .events = POLLIN};
    const int on = 1;
    while (poll(&asked, 1, JOIN_SECONDS * 1000) < 0 && errno == EINTR)
        continue;
    int fd = (asked.revents & POLLIN) != 0 ? accept4(listening, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (fd < 0)
        fail("the rank before has not connected");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void ring_join(struct ring *ring, uint64_t rank, int port, char *const addresses[], uint64_t ranks) {
    struct sigaction action = {.sa_handler = note};
    values_begin(&ring->values, rank, ranks);
    const struct sockaddr_in own = place(addresses[rank], port);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    int listening = made_socket();
    if (bind(listening, (const struct sockaddr *)&own, sizeof own) != 0 || listen(listening, 1) != 0)
        fail("%s:%d: %s", addresses[rank], port, strerror(errno));
    ring->next = connected(addresses[(rank + 1) % ranks], port);
    ring->previous = accepted(listening);
    close(listening);
}

/* Called when a connection has broken, as it does if a neighbour got SIGTERM before this rank. Return false
   if SIGTERM arrives here too within END_MS; otherwise fail(). */
static bool ended(uint64_t step) {
    for (int waited = 0; !ending && waited < END_MS; waited += LOOK_AGAIN_MS)
        wait_ms(LOOK_AGAIN_MS);
    if (!ending)
        fail("a connection broke in step %llu", (unsigned long long)step);
    return false;
}

bool ring_exchange(struct ring *ring, uint64_t step) {
    uint64_t message[VALUES_WORDS];
    values_fill(&ring->values, step, message);
    for (size_t done = 0; done < sizeof message;) {
        if (ending)
            return false;
        ssize_t sent = send(ring->next, (char *)message + done, sizeof message - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return ended(step);
        done += sent > 0 ? (size_t)sent : 0;
    }
    for (size_t done = 0; done < sizeof message;) {
        if (ending)
            return false;
        ssize_t got = recv(ring->previous, (char *)message + done, sizeof message - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return ended(step);
        done += got > 0 ? (size_t)got : 0;
    }
    values_take(&ring->values, step, message);
    return true;
}
