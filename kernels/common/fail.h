/* How every program reports an error before it ends: one JSON line on standard error,
   {"event":"error","program":"nm-dgemm","process":"CPU 1","what":"..."}. The line is recognised among the
   output of libraries and of other processes (src/nearmetal/host/processes/failure.py). */
#ifndef NEARMETAL_FAIL_H
#define NEARMETAL_FAIL_H

/* Set the program's name; the default is the name that it was started by. */
void fail_program(const char *name);

/* Say which of a program's processes this is, for example "CPU 1"; the default is none. */
void fail_process(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Call `leave` instead of exit(1). */
void fail_leave(void (*leave)(void));

/* fail_process("rank N") and fail_leave(leave); a negative rank is none. */
void fail_as(int rank, void (*leave)(void));

/* Also write the line to DIRECTORY/out, a FIFO that nearmetal reads. */
void fail_tell(const char *directory);

/* Write the line in one write() and go on. */
void fail_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Write the line and end. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
