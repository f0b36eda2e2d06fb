/* The agent: runs commands for the host. Each command is one channel of the line to the host (frames.h). */
#define _GNU_SOURCE
#include "fail.h"
#include "frames.h"
#include "port.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MOST_CHANNELS = 128, CLOSED = -1, EXIT_NOT_FOUND = 127, EXIT_AGENT = 111 };

/* One command. streams: its standard output and error; unused: bytes sent that the host has not consumed yet;
 * ended: whether it has ended, with wait status `status`; dropped: whether the host no longer waits for it.
 */
struct channel {
    uint32_t id;
    pid_t pid;
    int in, streams[2];
    struct bytes waiting;
    bool in_ends, ended, dropped;
    uint32_t unused;
    int status;
};

static struct channel channels[MOST_CHANNELS];
static size_t count;
static struct bytes sending;
/* If true, a command gets the environment of this process, with the host's variables added. If false, as in a
 * guest, it gets only the host's variables. */
static bool own_variables;

static void send_frame(uint32_t id, enum kind kind, const void *payload, size_t size) {
    if (!frame_put(&sending, id, kind, payload, size))
        give_up("out of memory", "agent");
}

static struct channel *find(uint32_t id) {
    for (size_t i = 0; i < count; i++)
        if (channels[i].id == id)
            return &channels[i];
    return NULL;
}

static void shut(int *fd) {
    if (*fd != CLOSED)
        close(*fd);
    *fd = CLOSED;
}

static void forget(struct channel *c) {
    shut(&c->in);
    shut(&c->streams[0]);
    shut(&c->streams[1]);
    bytes_free(&c->waiting);
    *c = channels[--count];
}

/* Run a command in a child process. streams: its standard input, output and error. */
static _Noreturn void run_child(char *cwd, char **words, char **variables, const int streams[3]) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(streams[i], i);
    if (chdir(cwd) != 0 && chdir("/") != 0)
        _exit(EXIT_AGENT);
    if (strcmp(words[0], "nm-guest") == 0) {
        close_range(3, ~0u, 0); /* descriptors of other commands, which no exec closes here */
        int argc = 0;
        while (words[argc] != NULL)
            argc++;
        int status = own_command(argc - 1, words + 1);
        fflush(stdout);
        _exit(status < 0 ? EXIT_NOT_FOUND : status);
    }
    if (own_variables)
        for (char **variable = variables; *variable != NULL; variable++)
            putenv(*variable);
    else
        environ = variables;
    execvp(words[0], words);
    int reason = errno;
    fail_report("exec: %s (%s)", strerror(reason), words[0]);
    _exit(reason == ENOENT ? EXIT_NOT_FOUND : EXIT_AGENT);
}

/* Split the payload of a RUN frame into its texts: the working directory, the arguments and the variables.
 * Return NULL if it is invalid. */
static char **take_texts(const char *payload, uint32_t size, char ***variables) {
    size_t texts = 0;
    if (size == 0 || payload[size - 1] != '\0')
        return NULL;
    for (uint32_t i = 0; i < size; i++)
        texts += payload[i] == '\0';
    char *copy = malloc(size), **list = calloc(texts + 2, sizeof *list);
    if (copy == NULL || list == NULL)
        give_up("out of memory", "agent");
    memcpy(copy, payload, size);
    size_t at = 0;
    for (char *text = copy; at < texts; text += strlen(text) + 1)
        list[at++] = text;
    size_t words = texts > 1 ? strtoul(list[1], NULL, 10) : 0;
    if (words == 0 || texts < 2 || words > texts - 2)
        return NULL;
    /* The variables move up by one, since each list needs a NULL at its end. */
    memmove(list + words + 3, list + words + 2, (texts - words - 2) * sizeof *list);
    list[words + 2] = NULL;
    *variables = list + words + 3;
    return list;
}

/* Answer a RUN like a command that has failed with this error message. */
static void refuse_run(uint32_t id, const char *why) {
    const int32_t status = EXIT_AGENT << 8;
    char line[128];
    int size =
        snprintf(line, sizeof line,
                 "{\"event\":\"error\",\"program\":\"nm-guest\",\"process\":\"\",\"what\":\"%s\"}\n", why);
    send_frame(id, ERR, line, (size_t)size);
    send_frame(id, ENDED, &status, sizeof status);
}

static void run(uint32_t id, const char *payload, uint32_t size) {
    int in[2], out[2], err[2];
    if (count == MOST_CHANNELS) {
        refuse_run(id, "too many commands at once");
        return;
    }
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        give_up("pipe", "agent");
    pid_t child = fork();
    if (child == 0) {
        char **variables = NULL, **texts = take_texts(payload, size, &variables);
        if (texts == NULL)
            _exit(EXIT_AGENT);
        run_child(texts[0], texts + 2, variables, (const int[]){in[0], out[1], err[1]});
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    if (child < 0) {
        refuse_run(id, "no new process");
        close(in[1]);
        close(out[0]);
        close(err[0]);
        return;
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    channels[count++] = (struct channel){.id = id, .pid = child, .in = in[1], .streams = {out[0], err[0]}};
}

static void answer_ping(uint32_t id) {
    struct timespec real = {0, 0};
    clock_gettime(CLOCK_REALTIME, &real);
    const uint64_t now[2] = {guest_now(), (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec};
    send_frame(id, PONG, now, sizeof now);
}

static void handle(const struct head *head, const char *payload) {
    struct channel *c = find(head->channel);
    switch (head->kind) {
    case RUN:
        run(head->channel, payload, head->length);
        return;
    case PING:
        answer_ping(head->channel);
        return;
    default:
        break;
    }
    if (c == NULL)
        return; /* the command has ended in the meantime */
    switch (head->kind) {
    case IN:
        if (c->in != CLOSED && !bytes_put(&c->waiting, payload, head->length))
            give_up("out of memory", "agent");
        break;
    case IN_END:
        c->in_ends = true;
        break;
    case SIGNAL:
        if (head->length == 1 && !c->ended)
            kill(c->pid, payload[0]);
        break;
    case WINDOW: {
        uint32_t used = 0;
        if (head->length == sizeof used)
            memcpy(&used, payload, sizeof used);
        c->unused -= used < c->unused ? used : c->unused;
        break;
    }
    case DROP:
        c->dropped = true;
        if (!c->ended)
            kill(-c->pid, SIGKILL);
        break;
    default:
        break;
    }
}

static void feed(struct channel *c) {
    size_t before = bytes_left(&c->waiting);
    if (c->in != CLOSED && before > 0 && !bytes_write(c->in, &c->waiting)) {
        c->waiting.begin = c->waiting.end; /* it reads no more */
        shut(&c->in);
    }
    const uint32_t used = (uint32_t)(before - bytes_left(&c->waiting));
    if (used > 0)
        send_frame(c->id, WINDOW, &used, sizeof used);
    if (c->in_ends && bytes_left(&c->waiting) == 0)
        shut(&c->in);
}

/* Send the output of a command to the host. After the command has ended, this reads only what is there:
 * processes that it left running may keep the stream open forever. */
static void drain(struct channel *c, int stream) {
    char piece[PIECE];
    int *fd = &c->streams[stream];
    while (*fd != CLOSED && c->unused < WINDOW_BYTES && bytes_left(&sending) < 4 * WINDOW_BYTES) {
        ssize_t got = read(*fd, piece, sizeof piece);
        if (got > 0) {
            if (!c->dropped) {
                send_frame(c->id, stream == 0 ? OUT : ERR, piece, (size_t)got);
                c->unused += (uint32_t)got;
            }
        } else if (got == 0 || errno != EAGAIN || c->ended) {
            shut(fd);
        } else {
            break;
        }
    }
}

static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (size_t i = 0; i < count; i++)
            if (channels[i].pid == pid && !channels[i].ended) {
                channels[i].ended = true;
                channels[i].status = status;
            }
}

static void finish(void) {
    for (size_t i = count; i-- > 0;) {
        struct channel *c = &channels[i];
        feed(c);
        drain(c, 0);
        drain(c, 1);
        if (!c->ended || c->streams[0] != CLOSED || c->streams[1] != CLOSED)
            continue;
        const int32_t status = c->status;
        if (!c->dropped)
            send_frame(c->id, ENDED, &status, sizeof status);
        forget(c);
    }
}

static size_t watch(struct pollfd *asked, int in, int out, int signals) {
    size_t n = 0;
    asked[n++] = (struct pollfd){.fd = in, .events = POLLIN};
    asked[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
    asked[n++] = (struct pollfd){.fd = bytes_left(&sending) ? out : -1, .events = POLLOUT};
    for (size_t i = 0; i < count; i++) {
        struct channel *c = &channels[i];
        if (c->in != CLOSED && bytes_left(&c->waiting) > 0)
            asked[n++] = (struct pollfd){.fd = c->in, .events = POLLOUT};
        for (int s = 0; s < 2; s++)
            if (c->streams[s] != CLOSED && c->unused < WINDOW_BYTES && bytes_left(&sending) < WINDOW_BYTES)
                asked[n++] = (struct pollfd){.fd = c->streams[s], .events = POLLIN};
    }
    return n;
}

/* Serve the line until its other end is closed. in, out: descriptors to read and to write, which may be the
 * same. */
static void converse(int in, int out, int signals) {
    struct bytes received = {NULL, 0, 0, 0};
    struct pollfd asked[3 + 3 * MOST_CHANNELS];
    struct signalfd_siginfo what;
    struct head head;
    const char *payload;
    for (;;) {
        size_t n = watch(asked, in, out, signals);
        if (poll(asked, n, -1) < 0 && errno != EINTR)
            give_up("poll", "agent");
        if (read(signals, &what, sizeof what) == (ssize_t)sizeof what)
            reap();
        ssize_t got = (asked[0].revents & (POLLIN | POLLHUP)) ? bytes_read(in, &received) : 1;
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        int whole;
        while ((whole = frame_take(&received, &head, &payload)) > 0)
            handle(&head, payload);
        if (whole < 0) {
            say("what the host says is no frame", "agent");
            break;
        }
        finish();
        if (!bytes_write(out, &sending))
            break;
    }
    bytes_free(&received);
}

static int watch_children(void) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals < 0)
        give_up("signalfd", "agent");
    return signals;
}

static void greet(const char *hello) {
    char text[1024];
    int length = snprintf(text, sizeof text, "%s, \"agent\": %" PRIu64 "}", hello, guest_now());
    send_frame(0, HELLO, text, (size_t)length);
}

/* Kill all commands, since the host is gone. */
static void end_commands(void) {
    while (count > 0) {
        kill(-channels[0].pid, SIGKILL);
        forget(&channels[0]);
    }
}

void serve(const struct given *given, const char *hello) {
    int signals = watch_children();
    for (;;) {
        int port = open_port(given);
        greet(hello);
        converse(port, port, signals);
        close(port);
        sending.begin = sending.end = 0;
        end_commands();
        usleep(20000);
        reap();
    }
}

/* Return the parent of a process; 0 if the process has ended. */
static long parent_of(const char *pid) {
    char path[64], text[512];
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* a name may contain spaces and parentheses */
    return name_end != NULL && sscanf(name_end + 1, " %*c %ld", &parent) == 1 ? parent : 0;
}

/* End all descendants. Children of a process that ends become children of this one (PR_SET_CHILD_SUBREAPER).
 */
static void end_descendants(void) {
    for (int tries = 0; tries < 5000 && (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD); tries++) {
        DIR *processes = opendir("/proc");
        for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;)
            if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == getpid())
                kill((pid_t)atol(entry->d_name), SIGKILL);
        if (processes != NULL)
            closedir(processes);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        usleep(1000);
    }
}

void serve_here(const char *hello) {
    int signals = watch_children();
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || out < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || fcntl(in, F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(out, F_SETFL, O_NONBLOCK) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        give_up("streams", "agent");
    own_variables = true;
    greet(hello);
    converse(in, out, signals);
    end_commands();
    end_descendants();
    exit(0);
}
