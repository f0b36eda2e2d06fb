#include "caller.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

enum { SIGNALS = 64 };

static struct {
    bool taken;
    uint64_t ignored, blocked;
} caller;

static unsigned long long next(const char **text, int base) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(*text, &end, base);
    if (end == *text || errno)
        fail("--caller: a number was expected, not '%s'", *text);
    *text = end;
    return value;
}

static void set_limit(int kind, rlim_t soft, rlim_t hard) {
    struct rlimit now, wanted = {soft, hard};
    if (getrlimit((__rlimit_resource_t)kind, &now) || (now.rlim_cur == soft && now.rlim_max == hard) ||
        setrlimit((__rlimit_resource_t)kind, &wanted) == 0)
        return;
    wanted.rlim_max = now.rlim_max;
    wanted.rlim_cur = soft < now.rlim_max ? soft : now.rlim_max;
    setrlimit((__rlimit_resource_t)kind, &wanted);
}

static void set_oom(int wanted) {
    char text[16];
    int file = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC),
        size = snprintf(text, sizeof text, "%d", wanted);
    if (file < 0)
        return;
    char now[16] = "";
    if (read(file, now, sizeof now - 1) > 0 && atoi(now) != wanted && write(file, text, (size_t)size) < 0)
        errno = 0; /* it stays as it is */
    close(file);
}

void caller_take(const char *text) {
    umask((mode_t)next(&text, 8));
    int nice = (int)next(&text, 10), oom = (int)next(&text, 10);
    if (getpriority(PRIO_PROCESS, 0) != nice)
        setpriority(PRIO_PROCESS, 0, nice);
    set_oom(oom);
    caller.ignored = next(&text, 16);
    caller.blocked = next(&text, 16);
    caller.taken = true;
    for (int kind = 0; *text && kind < (int)RLIM_NLIMITS; kind++) {
        rlim_t soft = (rlim_t)next(&text, 10);
        if (*text++ != ':')
            fail("--caller: SOFT:HARD was expected");
        set_limit(kind, soft, (rlim_t)next(&text, 10));
    }
}

void caller_set_signals(void) {
    sigset_t blocked;
    if (!caller.taken)
        return;
    sigemptyset(&blocked);
    for (int sign = 1; sign <= SIGNALS; sign++) {
        signal(sign, caller.ignored >> (sign - 1) & 1 ? SIG_IGN : SIG_DFL); /* an agent may ignore others */
        if (caller.blocked >> (sign - 1) & 1)
            sigaddset(&blocked, sign);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
}
