/* The one way out of an error: a JSON line that says what went wrong, then a non-zero exit. */
#include "fail.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "text.h"

static struct {
    const char *directory;
    int rank;
    void (*leave)(void);
} failing;

void fail_tell(const char *directory) {
    failing.directory = directory;
}

void fail_as(int rank, void (*leave)(void)) {
    failing.rank = rank;
    failing.leave = leave;
}

/* Any rank may be the one that fails, and only rank 0 holds the FIFO open: a line below PIPE_BUF written by
   another descriptor is still atomic. Without a reader (ENXIO) the line on stderr is all there is. */
static void tell_orchestrator(const Text *line) {
    char path[4096];
    snprintf(path, sizeof path, "%s/out", failing.directory);
    int out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (out >= 0) {
        text_write(line, out);
        close(out);
    }
}

_Noreturn void fail(const char *format, ...) {
    char what[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);

    Text line = {0};
    text_add(&line, "{\"event\":\"error\",\"rank\":%d,\"what\":", failing.rank);
    json_string(&line, what);
    text_add(&line, "}\n");
    text_write(&line, STDERR_FILENO);
    if (failing.directory)
        tell_orchestrator(&line);
    text_free(&line);
    if (failing.leave)
        failing.leave();
    exit(1);
}
