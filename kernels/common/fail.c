/* How every program reports an error before it ends: one JSON line on standard error. */
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

enum { MOST_WHAT = 1024 };

static struct {
    const char *program;
    char process[64];
    const char *directory;
    void (*leave)(void);
} failing;

void fail_program(const char *name) {
    failing.program = name;
}

void fail_process(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failing.process, sizeof failing.process, format, arguments);
    va_end(arguments);
}

void fail_leave(void (*leave)(void)) {
    failing.leave = leave;
}

void fail_as(int rank, void (*leave)(void)) {
    if (rank >= 0)
        fail_process("rank %d", rank);
    else
        failing.process[0] = '\0';
    fail_leave(leave);
}

void fail_tell(const char *directory) {
    failing.directory = directory;
}

/* Any rank may fail, but only rank 0 has the FIFO open, so this opens it again. A line shorter than PIPE_BUF
   is written atomically. If the FIFO has no reader (ENXIO), only the line on stderr remains. */
static void tell_orchestrator(const Text *line) {
    char path[4096];
    snprintf(path, sizeof path, "%s/out", failing.directory);
    int out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (out >= 0) {
        text_write(line, out);
        close(out);
    }
}

static void report(const char *format, va_list arguments) {
    char what[MOST_WHAT];
    vsnprintf(what, sizeof what, format, arguments);
    Text line = {0};
    text_add(&line, "{\"event\":\"error\",\"program\":");
    json_string(&line, failing.program ? failing.program : program_invocation_short_name);
    text_add(&line, ",\"process\":");
    json_string(&line, failing.process);
    text_add(&line, ",\"what\":");
    json_string(&line, what);
    text_add(&line, "}\n");
    text_write(&line, STDERR_FILENO);
    if (failing.directory)
        tell_orchestrator(&line);
    text_free(&line);
}

void fail_report(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
}

_Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    if (failing.leave)
        failing.leave();
    exit(1);
}
