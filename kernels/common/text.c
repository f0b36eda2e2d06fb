/* A growing text, to which formatted text and JSON values are appended. */
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void make_room(Text *text, size_t more) {
    if (text->used + more <= text->room)
        return;
    size_t room = 2 * (text->used + more) + 256;
    char *data = realloc(text->data, room);
    if (!data) { /* fail() needs memory itself, so it cannot report this */
        static const char line[] =
            "{\"event\":\"error\",\"program\":\"nm\",\"process\":\"\",\"what\":\"out of memory\"}\n";
        (void)!write(STDERR_FILENO, line, sizeof line - 1);
        abort();
    }
    text->data = data;
    text->room = room;
}

void text_add(Text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    make_room(text, (size_t)length + 1);
    va_start(arguments, format);
    vsnprintf(text->data + text->used, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->used += (size_t)length;
}

void text_free(Text *text) {
    free(text->data);
    *text = (Text){0};
}

bool text_write(const Text *text, int descriptor) {
    for (size_t done = 0; done < text->used;) {
        ssize_t count = write(descriptor, text->data + done, text->used - done);
        if (count < 0 && errno != EINTR)
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

void json_string(Text *text, const char *value) {
    text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_add(text, "\\%c", *c);
        else if (*c < 0x20 || *c >= 0x7f) /* host names and paths may hold bytes that are not UTF-8 */
            text_add(text, "\\u%04x", *c);
        else
            text_add(text, "%c", *c);
    }
    text_add(text, "\"");
}

void json_number(Text *text, double value) {
    if (isfinite(value))
        text_add(text, "%.17g", value);
    else
        text_add(text, "null");
}
