/* nm-box guest SOCKET [--only FILE] [--stdin PATH] [--stdout PATH] -- COMMAND...: runs a command in a virtual
 * machine or on another machine, through the multiplexer that holds the line to the agent there
 * (multiplex.c). Environment, working directory, streams and signals are passed on. nm-box guest ends like
 * the command.
 *
 * --only: a file of rules, each ended by a zero byte, that select the variables to pass on. The first rule
 * that matches decides. "+NAME=VALUE" passes on this variable with this value, "-NAME=VALUE" does not.
 * "+PREFIX*" passes on all variables whose names begin with PREFIX. Variables that match no rule are not
 * passed on. */
#define _GNU_SOURCE
#include "box.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The signal handler writes to this pipe, and the main loop reads from it. */
static int signal_pipe[2];

static void note(int sign) {
    int kept = errno;
    unsigned char byte = (unsigned char)sign;
    if (write(signal_pipe[1], &byte, 1) != 1)
        _exit(EXIT_BOX);
    errno = kept;
}

static void put_text(struct bytes *to, const char *text) {
    if (!bytes_put(to, text, strlen(text) + 1))
        die("allocate", "command");
}

/* The rules of --only; NULL to pass on all variables. */
static char *rules;
static size_t rules_size;

static void read_rules(const char *path) {
    FILE *file = fopen(path, "re");
    long size = file != NULL && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0 || (rules = calloc(1, (size_t)size + 1)) == NULL ||
        fread(rules, 1, (size_t)size, file) != (size_t)size)
        die("read", path);
    rules_size = (size_t)size;
    fclose(file);
}

static bool handed_over(const char *variable) {
    for (const char *rule = rules; rule != NULL && rule < rules + rules_size; rule += strlen(rule) + 1) {
        size_t length = strlen(rule);
        bool prefix = length > 1 && rule[length - 1] == '*' && strchr(rule, '=') == NULL;
        if (prefix ? strncmp(variable, rule + 1, length - 2) == 0
                   : length > 0 && strcmp(variable, rule + 1) == 0)
            return rule[0] == '+';
    }
    return rules == NULL;
}

static void put_command(struct bytes *to, int argc, char **argv) {
    struct bytes texts = {NULL, 0, 0, 0};
    char here[PATH_MAX] = "/", words[16];
    if (getcwd(here, sizeof here) == NULL)
        here[0] = '/', here[1] = '\0'; /* the directory was removed */
    put_text(&texts, here);
    snprintf(words, sizeof words, "%d", argc);
    put_text(&texts, words);
    for (int i = 0; i < argc; i++)
        put_text(&texts, argv[i]);
    for (char **variable = environ; *variable != NULL; variable++)
        if (handed_over(*variable))
            put_text(&texts, *variable);
    if (bytes_left(&texts) > LONGEST_FRAME)
        refuse("command and environment are too long", argv[0]);
    if (!frame_put(to, 0, RUN, texts.data, bytes_left(&texts)))
        die("allocate", "command");
    bytes_free(&texts);
}

int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        refuse("path too long", path);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        die("connect", path);
    return fd;
}

static void write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd asked = {.fd = fd, .events = POLLOUT};
            poll(&asked, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            die("write", "output of the command");
        }
        data += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
}

/* Handle a frame from the guest. */
static void handle(const struct head *head, const char *payload, struct bytes *out, uint32_t *unused) {
    uint32_t number = 0;
    switch (head->kind) {
    case OUT:
    case ERR:
        write_all(head->kind == OUT ? STDOUT_FILENO : STDERR_FILENO, payload, head->length);
        if (!frame_put(out, 0, WINDOW, &head->length, sizeof head->length))
            die("allocate", "window");
        break;
    case WINDOW:
        if (head->length == sizeof number)
            memcpy(&number, payload, sizeof number);
        *unused -= number < *unused ? number : *unused;
        break;
    case ENDED: {
        int32_t status = EXIT_BOX << 8;
        if (head->length == sizeof status)
            memcpy(&status, payload, sizeof status);
        end_with(status);
    }
    default:
        break;
    }
}

static _Noreturn void converse(int line, struct bytes *out) {
    struct bytes in = {NULL, 0, 0, 0};
    uint32_t unused = 0;
    bool reads = true;
    for (;;) {
        struct pollfd asked[3] = {
            {.fd = line, .events = (short)(POLLIN | (bytes_left(out) ? POLLOUT : 0))},
            {.fd = signal_pipe[0], .events = POLLIN},
            {.fd = reads && unused < WINDOW_BYTES ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(asked, 3, -1) < 0 && errno != EINTR)
            die("poll", "guest");
        unsigned char sign;
        if ((asked[1].revents & POLLIN) && read(signal_pipe[0], &sign, 1) == 1 &&
            !frame_put(out, 0, SIGNAL, &sign, 1))
            die("allocate", "signal");
        if (asked[2].fd >= 0 && asked[2].revents != 0) {
            char piece[PIECE];
            ssize_t got = read(STDIN_FILENO, piece, sizeof piece);
            reads = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
            if (got > 0)
                unused += (uint32_t)got;
            if ((got > 0 || !reads) &&
                !frame_put(out, 0, reads ? IN : IN_END, piece, got > 0 ? (size_t)got : 0))
                die("allocate", "input");
        }
        if (!bytes_write(line, out))
            out->begin = out->end; /* the agent has gone, but its last frames may still be read */
        if ((asked[0].revents & (POLLIN | POLLHUP)) == 0)
            continue;
        ssize_t got = bytes_read(line, &in);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            refuse("the guest has gone while a command ran in it", "read its console");
        struct head head;
        const char *payload;
        int whole;
        while ((whole = frame_take(&in, &head, &payload)) > 0)
            handle(&head, payload, out, &unused);
        if (whole < 0)
            refuse("not a frame", "multiplexer");
    }
}

/* Replace a standard stream by a file. Opening a FIFO waits for the other end. */
static void replace(int fd, const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC);
    if (file < 0 || dup2(file, fd) != fd)
        die("open", path);
    close(file);
}

int guest_main(int argc, char **argv) {
    struct bytes out = {NULL, 0, 0, 0};
    int at = 2;
    for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
        if (strcmp(argv[at], "--stdin") == 0)
            replace(STDIN_FILENO, argv[at + 1], O_RDONLY);
        else if (strcmp(argv[at], "--stdout") == 0)
            replace(STDOUT_FILENO, argv[at + 1], O_WRONLY);
        else if (strcmp(argv[at], "--only") == 0)
            read_rules(argv[at + 1]);
        else
            refuse("unknown option", argv[at]);
    }
    if (at + 1 >= argc || strcmp(argv[at], "--") != 0)
        refuse("usage: nm-box guest SOCKET [--only FILE] [--stdin PATH] [--stdout PATH] -- COMMAND...",
               "guest");
    int line = connect_to(argv[1]);
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0 || fcntl(line, F_SETFL, O_NONBLOCK) != 0)
        die("pipe", "signals");
    handle_signals(note, SIG_UNBLOCK);
    put_command(&out, argc - at - 1, argv + at + 1);
    converse(line, &out);
}
