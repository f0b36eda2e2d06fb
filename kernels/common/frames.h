/* What travels between the programs of a host and the agent in a guest: frames of many channels over one byte
 * stream. A channel is one command; whoever sends more than WINDOW_BYTES that the other end has not yet
 * reported as used waits, so that no buffer grows without end. */
#ifndef NM_FRAMES_H
#define NM_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Host to guest: RUN (its directory, its number of words, its words, its variables, each with a final zero),
 * IN, IN_END, SIGNAL (a byte), DROP (nobody waits for it any more), PING. Guest to host: OUT, ERR, ENDED (a
 * wait status, 4 bytes), HELLO (JSON, once it is ready), PONG (its CLOCK_MONOTONIC and CLOCK_REALTIME in
 * nanoseconds, 8 bytes each). Both: WINDOW (bytes used, 4 bytes). To the multiplexer: AWAIT (a HELLO, also
 * one that came before, behind the 8 bytes of the host's CLOCK_MONOTONIC when it came); MOVE (the path where
 * the guest's second hypervisor will connect), SWITCH (to it) or STAY, each answered by MOVED (0 for yes, a
 * byte). */
enum kind {
    RUN = 1,
    IN,
    IN_END,
    SIGNAL,
    WINDOW,
    OUT,
    ERR,
    ENDED,
    HELLO,
    DROP,
    PING,
    PONG,
    AWAIT,
    MOVE,
    SWITCH,
    STAY,
    MOVED
};

struct head {
    uint32_t channel;
    uint32_t kind;
    uint32_t length;
};

enum { LONGEST_FRAME = 1 << 20, WINDOW_BYTES = 1 << 17, PIECE = 1 << 14 };

struct bytes {
    char *data;
    size_t begin, end, room;
};

/* Of all the functions that take memory: false where there is none. */
bool bytes_put(struct bytes *to, const void *data, size_t size);
void bytes_free(struct bytes *from);
static inline size_t bytes_left(const struct bytes *from) {
    return from->end - from->begin;
}

bool frame_put(struct bytes *to, uint32_t channel, enum kind kind, const void *payload, size_t size);
/* Whether a whole frame is there; its payload stays valid until more is put into `from`. -1: not a frame. */
int frame_take(struct bytes *from, struct head *head, const char **payload);

/* Reads what there is. 0: the other end is closed; -1: nothing now (errno is EAGAIN), or an error. */
ssize_t bytes_read(int fd, struct bytes *to);
/* Writes what fits: false on an error. */
bool bytes_write(int fd, struct bytes *from);

#endif
