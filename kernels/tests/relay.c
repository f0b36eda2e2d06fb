/* Checks that the relay sends a frame when it is due, also if the clock of the machine is set meanwhile. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

static time_t step; /* seconds by which the clock was set */

static int stepped(clockid_t clock, struct timespec *now) {
    int failed = clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += step;
    return failed;
}

#define clock_gettime stepped
#include "../box/relay.c"
#undef clock_gettime

enum { LENGTH = 60, MILLISECOND = 1000000 };

/* Relay one frame, and set the clock after its arrival. Return whether it was sent within some milliseconds.
 */
static bool sent(uint64_t delay, time_t by) {
    static struct place places[ADDRESSES];
    static struct frame ring[FRAMES];
    static unsigned char data[FRAME_MAX];
    unsigned char frame[LENGTH] = {1}; /* to a group address, so to all other ports */
    int from[2], to[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, from) != 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, to) != 0)
        die("socketpair", "ports");
    ring[0].data = ring[1].data = data;
    struct relay r = {
        .sockets = {from[0], to[0]}, .ports = 2, .delay = delay, .ring = ring, .places = places};
    step = 0;
    if (send(from[1], frame, sizeof frame, 0) != LENGTH)
        die("send", "frame");
    take(&r, 0);
    step = by;
    nanosleep(&(struct timespec){.tv_nsec = 5 * MILLISECOND}, NULL);
    send_due(&r);
    bool came = recv(to[1], frame, sizeof frame, MSG_DONTWAIT) == LENGTH;
    for (int i = 0; i < 2; i++) {
        close(from[i]);
        close(to[i]);
    }
    return came;
}

int main(void) {
    const uint64_t hour = 3600ull * 1000 * MILLISECOND;
    int failures = 0;
    for (time_t by = -7200; by <= 7200; by += 7200) {
        if (!sent(MILLISECOND, by))
            failures += printf("a frame is kept when the clock is set by %ld s\n", (long)by) > 0;
        if (sent(hour, by))
            failures += printf("a frame is sent too early when the clock is set by %ld s\n", (long)by) > 0;
    }
    return failures != 0;
}
