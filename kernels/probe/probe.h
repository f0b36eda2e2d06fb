/* What the parts of nm-probe share. */
#ifndef NM_PROBE_H
#define NM_PROBE_H

#include <stdbool.h>
#include <stdint.h>

/* What a request holds: its number. TCP sends one after the other, so that all have this length. */
enum { REQUEST_BYTES = 8 };

int answer_main(int argc, char **argv);
int ask_main(int argc, char **argv);
int dirty_main(int argc, char **argv);

/* A whole number from `least` to `most`, or fail(). */
int64_t number(const char *text, int64_t least, int64_t most, const char *option);
/* CLOCK_MONOTONIC in nanoseconds. */
int64_t now_ns(void);
/* Sleep until a time of CLOCK_MONOTONIC, or until asked to end. */
void sleep_until(int64_t when);
/* Set by SIGTERM and SIGINT, which then interrupt system calls. */
bool asked_to_end(void);
void end_when_asked(void);

#endif
