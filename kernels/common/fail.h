/* How every program reports an error before it ends: one JSON line on standard error,
   {"event":"error","program":"nm-dgemm","process":"CPU 1","what":"..."}. The line is recognised among the
   output of libraries and of other processes (src/nearmetal/host/processes/failure.py). */
#ifndef NEARMETAL_FAIL_H
#define NEARMETAL_FAIL_H

/* Set the program's name; the default is the name that it was started by. */
void fail_program(const char *name);

/* Set the name of this process among those of the program, for example "CPU 1"; the default is none. */
void fail_process(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Let fail() call `leave` instead of exit(1). */
void fail_leave(void (*leave)(void));

/* Do fail_process("rank N") and fail_leave(leave); without a name if the rank is negative. */
void fail_as(int rank, void (*leave)(void));

/* Also write the line to DIRECTORY/out, a FIFO that nearmetal reads. */
void fail_tell(const char *directory);

/* Write the line by one write(), and return. */
void fail_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Write the line, and end the process. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
