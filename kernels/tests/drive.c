/* drive RANKS TOKEN... -- PROGRAM ARG...: plays nearmetal's part for tests of nm-micro. It creates the FIFOs,
   replaces the argument TOKENS by their directory, starts PROGRAM, sends one token after the other (s0, v1,
   ...) to all ranks, and waits for the line that answers each. Exit status 0 if every answer came and no
   verification failed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 16, LINE = 1 << 16, PATIENCE_MS = 600000 };

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "drive: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int make_fifo(const char *directory, const char *name, int flags) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (mkfifo(path, 0600))
        give_up(path);
    int descriptor = open(path, flags | O_CLOEXEC);
    if (descriptor < 0)
        give_up(path);
    return descriptor;
}

/* Read a complete line of nm-micro into `line`. */
static void receive(int out, char *line) {
    for (size_t used = 0; used < LINE - 1;) {
        struct pollfd wait = {.fd = out, .events = POLLIN};
        if (poll(&wait, 1, PATIENCE_MS) <= 0)
            give_up("no answer");
        ssize_t count = read(out, line + used, 1);
        if (count == 0)
            give_up("nm-micro has gone");
        if (count > 0 && line[used++] == '\n') {
            line[used] = 0;
            fputs(line, stdout);
            return;
        }
    }
    give_up("line too long");
}

static bool has(const char *line, const char *words) {
    return strstr(line, words) != NULL;
}

static void take_away(const char *directory, int ranks) {
    char path[256];
    for (int r = -1; r < ranks; r++) {
        snprintf(path, sizeof path, r < 0 ? "%s/out" : "%s/token.%d", directory, r);
        unlink(path);
    }
    rmdir(directory);
}

int main(int count, char **arguments) {
    int ranks = count > 1 ? atoi(arguments[1]) : 0, program = 2;
    while (program < count && strcmp(arguments[program], "--") != 0)
        program++;
    if (ranks < 1 || ranks > MOST_RANKS || program + 1 >= count)
        give_up("usage: drive RANKS TOKEN... -- PROGRAM ARG...");

    const char *parent = getenv("TMPDIR");
    char directory[192], name[32];
    snprintf(directory, sizeof directory, "%s/nearmetal-drive-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(directory))
        give_up(directory);
    int token[MOST_RANKS], out = make_fifo(directory, "out", O_RDONLY | O_NONBLOCK);
    for (int r = 0; r < ranks; r++) {
        snprintf(name, sizeof name, "token.%d", r);
        token[r] = make_fifo(directory, name, O_RDWR);
    }
    for (int a = program + 1; a < count; a++)
        if (strcmp(arguments[a], "TOKENS") == 0)
            arguments[a] = directory;

    pid_t child = fork();
    if (child < 0)
        give_up("fork");
    if (child == 0) {
        execvp(arguments[program + 1], arguments + program + 1);
        give_up(arguments[program + 1]);
    }

    static char line[LINE];
    receive(out, line);
    bool good = has(line, "\"event\":\"ready\"");
    for (int t = 2; t < program && good; t++) {
        for (int r = 0; r < ranks; r++)
            dprintf(token[r], "%c %s\n", arguments[t][0], arguments[t] + 1);
        receive(out, line);
        good = arguments[t][0] == 's' ? has(line, "\"event\":\"slice\"") : has(line, "\"ok\":true");
    }
    for (int r = 0; r < ranks; r++) {
        if (r % 2)
            dprintf(token[r], "q\n"); /* the others see the end of their tokens: both mean quit */
        close(token[r]);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        give_up("waitpid");
    take_away(directory, ranks);
    return good && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
