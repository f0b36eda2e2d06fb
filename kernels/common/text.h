/* A growing text, to which formatted text and JSON values are appended. */
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

/* Write the whole text, by one write() if the kernel accepts it at once. Return false on an error, for
   example if the reader has closed its end. */
bool text_write(const Text *text, int descriptor);

void json_string(Text *text, const char *value);
void json_number(Text *text, double value); /* null if it is not finite, since JSON has no NaN */

#endif
