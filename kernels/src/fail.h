/* The one way out of an error: a JSON line that says what went wrong, then a non-zero exit. */
#ifndef NEARMETAL_FAIL_H
#define NEARMETAL_FAIL_H

/* Also write the line to DIRECTORY/out, a FIFO whose reader is the orchestrator. */
void fail_tell(const char *directory);

/* Name the failing rank, and run `leave` instead of exit(1) (it ends the other ranks too). */
void fail_as(int rank, void (*leave)(void));

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
