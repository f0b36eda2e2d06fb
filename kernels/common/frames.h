/* The protocol between programs on a host and the agent in a guest: frames of many channels over one byte
 * stream. Each channel is one command. Flow control: a sender stops when it has sent WINDOW_BYTES that the
 * receiver has not yet reported as consumed, so that buffers stay bounded. */
#ifndef NM_FRAMES_H
#define NM_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Kinds of frames, with their payloads.
 *
 * From host to guest: RUN starts a command (working directory, number of arguments, arguments, environment
 * variables; each text ends with a zero byte); IN is a part of its standard input, IN_END the end of it;
 * SIGNAL sends a signal (1 byte); DROP says that the host no longer waits for the command; PING is answered
 * by PONG.
 *
 * From guest to host: OUT and ERR are parts of standard output and error; ENDED is the wait status of the
 * command (4 bytes); HELLO is JSON, sent once when the agent is ready; PONG holds the guest's CLOCK_MONOTONIC
 * and CLOCK_REALTIME in nanoseconds (8 bytes each).
 *
 * In both directions: WINDOW reports bytes consumed (4 bytes).
 *
 * From a host program to the multiplexer (nm-box multiplex): AWAIT asks for the HELLO, which is answered even
 * if it came earlier, preceded by the host's CLOCK_MONOTONIC at its arrival (8 bytes); MOVE prepares a move
 * to a second hypervisor, which will connect at the path in the payload; SWITCH goes on with the second
 * hypervisor; STAY gives the move up. MOVE, SWITCH and STAY are answered by MOVED (1 byte, 0 for success). */
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

/* Functions that allocate memory return false if there is none. */
bool bytes_put(struct bytes *to, const void *data, size_t size);
void bytes_free(struct bytes *from);
static inline size_t bytes_left(const struct bytes *from) {
    return from->end - from->begin;
}

bool frame_put(struct bytes *to, uint32_t channel, enum kind kind, const void *payload, size_t size);
/* Take the next frame. Return 1 if it was complete, 0 if more bytes are needed, -1 if the bytes are no frame.
 * The payload stays valid until more bytes are put into `from`. */
int frame_take(struct bytes *from, struct head *head, const char **payload);

/* Read up to PIECE bytes. Return their number; 0 if the other end is closed; -1 if there is nothing to read
 * (errno is EAGAIN) or on an error. */
ssize_t bytes_read(int fd, struct bytes *to);
/* Write as much as the descriptor takes now. Return false on an error. */
bool bytes_write(int fd, struct bytes *from);

#endif
