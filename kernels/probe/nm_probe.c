/* nm-probe answer | ask | dirty: see README.md. */
#include "fail.h"
#include "probe.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t ending;

static void note(int number) {
    (void)number;
    ending = 1;
}

bool asked_to_end(void) {
    return ending != 0;
}

void end_when_asked(void) {
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int64_t number(const char *text, int64_t least, int64_t most, const char *option) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > most)
        fail("%s %s is not a number in range", option, text);
    return value;
}

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_until(int64_t when) {
    const struct timespec at = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)};
    while (!asked_to_end() && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int, char **);
    } commands[] = {{"answer", answer_main}, {"ask", ask_main}, {"dirty", dirty_main}};
    fail_program("nm-probe");
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fail("usage: nm-probe answer|ask|dirty ...");
}
