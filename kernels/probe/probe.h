/* Declarations that the parts of nm-probe share. */
#ifndef NM_PROBE_H
#define NM_PROBE_H

#include <stdbool.h>
#include <stdint.h>

/* Length of a request, which is its number. TCP requests follow each other without separators. */
enum { REQUEST_BYTES = 8 };

int answer_main(int argc, char **argv);
int ask_main(int argc, char **argv);
int dirty_main(int argc, char **argv);

/* Return the value of an option, a whole number from `least` to `most`, or fail(). */
int64_t number(const char *text, int64_t least, int64_t most, const char *option);
/* Return CLOCK_MONOTONIC in nanoseconds. */
int64_t now_ns(void);
/* Sleep until a time of CLOCK_MONOTONIC, or until a signal arrives. */
void sleep_until(int64_t when);
/* Return whether SIGTERM or SIGINT has arrived, once end_when_asked() was called. They interrupt system
 * calls. */
bool asked_to_end(void);
void end_when_asked(void);

#endif
