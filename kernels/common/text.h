/* A growing text and the few JSON values that are written into it. */
#ifndef NEARMETAL_TEXT_H
#define NEARMETAL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char *data;
    size_t used, room;
} Text;

void text_add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(Text *text);

/* Write all of it; false when the reader has gone. One write() wherever the kernel takes it whole. */
bool text_write(const Text *text, int descriptor);

void json_string(Text *text, const char *value);
void json_number(Text *text, double value); /* null where it is not finite: JSON has no NaN */

#endif
