#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool make_room(struct bytes *to, size_t size) {
    if (to->begin == to->end)
        to->begin = to->end = 0;
    if (to->room - to->end >= size)
        return true;
    if (to->begin > 0) {
        memmove(to->data, to->data + to->begin, bytes_left(to));
        to->end -= to->begin;
        to->begin = 0;
    }
    size_t room = to->room > 0 ? to->room : 4096;
    while (room - to->end < size)
        room *= 2;
    char *data = room == to->room ? to->data : realloc(to->data, room);
    if (data == NULL)
        return false;
    to->data = data;
    to->room = room;
    return true;
}

bool bytes_put(struct bytes *to, const void *data, size_t size) {
    if (!make_room(to, size))
        return false;
    if (size > 0)
        memcpy(to->data + to->end, data, size);
    to->end += size;
    return true;
}

void bytes_free(struct bytes *from) {
    free(from->data);
    *from = (struct bytes){NULL, 0, 0, 0};
}

bool frame_put(struct bytes *to, uint32_t channel, enum kind kind, const void *payload, size_t size) {
    const struct head head = {channel, kind, (uint32_t)size};
    return make_room(to, sizeof head + size) && bytes_put(to, &head, sizeof head) &&
           bytes_put(to, payload, size);
}

int frame_take(struct bytes *from, struct head *head, const char **payload) {
    if (bytes_left(from) < sizeof *head)
        return 0;
    memcpy(head, from->data + from->begin, sizeof *head);
    if (head->length > LONGEST_FRAME || head->kind < RUN || head->kind > MOVED)
        return -1;
    if (bytes_left(from) < sizeof *head + head->length)
        return 0;
    *payload = from->data + from->begin + sizeof *head;
    from->begin += sizeof *head + head->length;
    return 1;
}

ssize_t bytes_read(int fd, struct bytes *to) {
    if (!make_room(to, PIECE)) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t got = read(fd, to->data + to->end, PIECE);
    if (got > 0)
        to->end += (size_t)got;
    return got;
}

bool bytes_write(int fd, struct bytes *from) {
    while (bytes_left(from) > 0) {
        ssize_t done = write(fd, from->data + from->begin, bytes_left(from));
        if (done < 0)
            return errno == EAGAIN || errno == EINTR;
        from->begin += (size_t)done;
    }
    return true;
}
