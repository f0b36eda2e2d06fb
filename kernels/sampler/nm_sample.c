/* nm-sample COMMANDS OUT PERIOD_MS FLUSH_MS: the sampler of counter files. It keeps the files open, reads
 * them every PERIOD_MS, and appends the samples as JSON Lines to OUT every FLUSH_MS. "own" in a sample is the
 * CPU time that this program has used so far. Which files to read is given by lines on the descriptor
 * COMMANDS:
 *
 *   + SCOPE NAME EVERY PATH   from now on, read PATH in every EVERYth sample
 *   ! SCOPE                   read all files of SCOPE now, and write OUT
 *   - SCOPE                   stop reading the files of SCOPE
 *
 * A file is opened when it is first read, so a file that exists only between two samples is never opened.
 * When COMMANDS reaches its end, for example because its writer was killed, nm-sample takes a last sample of
 * all files and exits. A file that cannot be opened or read is left out of the sample. Exit status: 0; 2 for
 * wrong usage; 3 if OUT cannot be written, with the reason on standard error and only complete lines in OUT.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

enum {
    WRONG_USE = 2,
    NO_WRITE = 3,
    PART = 1 << 16,
    LINE_MAX_BYTES = 8192,
    /* A read of at most this many bytes was complete. The kernel returns some longer files page by page. */
    SURELY_ALL = 3968,
    WRITE_AT = 1 << 20,
    NOT_YET = -1,
    NEVER = -2,
};

struct bytes {
    char *data;
    size_t size, room;
};

/* The parts that are cut out of long files, by the name of the file. */
struct cut {
    const char *name;
    const char *from, *to; /* text from `from` up to, not including, `to` is cut out; both begin a line */
    size_t keep;           /* number of words of the first line that are kept */
};
static const struct cut cuts[] = {
    {"stat", "\ncpu0 ", "\nintr ", 0}, /* the lines of single CPUs; their sum is kept */
    {"stat", "\nintr ", "\nctxt ", 2}, /* the counts of single interrupts; their sum is kept */
    {"vmstat", "\nnr_free_pages_blocks ", "\npgpgin ", 0},
    {"vmstat", "\nnr_zone_inactive_anon ", "\npgpgin ", 0}, /* before Linux 6.16 the second line */
    {"vmstat", "\npgalloc_dma ", NULL, 0},                  /* all after paging and swapping */
};

struct file {
    char *scope, *name, *path;
    int fd; /* NOT_YET opened, or NEVER, since it could not be */
    unsigned every;
};

static struct file *files;
static size_t file_count;
static struct bytes out, part;
static int out_fd;

static void *need(void *memory) {
    if (!memory) {
        fail_report("out of memory");
        exit(NO_WRITE);
    }
    return memory;
}

static void reserve(struct bytes *b, size_t more) {
    if (b->size + more <= b->room)
        return;
    while (b->room < b->size + more)
        b->room = b->room ? 2 * b->room : PART;
    b->data = need(realloc(b->data, b->room));
}

static void add(struct bytes *b, const char *text, size_t size) {
    reserve(b, size);
    memcpy(b->data + b->size, text, size);
    b->size += size;
}

static void add_text(struct bytes *b, const char *text) {
    add(b, text, strlen(text));
}

/* Add a JSON string. A byte that is not ASCII becomes its Latin-1 character, so that no byte is lost. */
static void add_quoted(struct bytes *b, const char *text, size_t size) {
    reserve(b, 6 * size + 2);
    char *to = b->data + b->size;
    *to++ = '"';
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            *to++ = '\\';
            *to++ = 'n';
        } else if (c == '"' || c == '\\') {
            *to++ = '\\';
            *to++ = (char)c;
        } else if (c < 0x20 || c >= 0x7f) {
            to += sprintf(to, "\\u%04x", c);
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    b->size = (size_t)(to - b->data);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Write the pending samples. If the last line does not fit on the disk, OUT is cut back to complete lines. */
static void flush(void) {
    off_t whole = lseek(out_fd, 0, SEEK_END);
    size_t done = 0;
    while (done < out.size) {
        ssize_t n = write(out_fd, out.data + done, out.size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            fail_report("%s", strerror(errno));
            if (whole >= 0 && ftruncate(out_fd, whole))
                fail_report("ftruncate: %s", strerror(errno));
            exit(NO_WRITE);
        }
        done += (size_t)n;
    }
    out.size = 0;
}

/* Read the whole file into `part`, with a final zero byte. Return false if it can no longer be read. */
static bool read_whole(int fd) {
    part.size = 0;
    for (;;) {
        reserve(&part, PART + 1);
        ssize_t n = pread(fd, part.data + part.size, PART, (off_t)part.size);
        if (n < 0)
            return false;
        part.size += (size_t)n;
        if (n == 0 || (part.size == (size_t)n && n < SURELY_ALL))
            break;
    }
    part.data[part.size] = 0;
    return true;
}

static void cut_down(const char *name) {
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        if (strcmp(cuts[i].name, name) != 0)
            continue;
        char *from = strstr(part.data, cuts[i].from);
        if (!from)
            continue;
        char *to = cuts[i].to ? strstr(from, cuts[i].to) : part.data + part.size - 1;
        if (!to || to < from)
            continue;
        if (cuts[i].keep) {
            from++;
            for (size_t word = 0; word < cuts[i].keep; word++)
                from += strcspn(from, " \n") + (word + 1 < cuts[i].keep);
        }
        if (from >= to)
            continue;
        size_t rest = part.size - (size_t)(to - part.data);
        memmove(from, to, rest + 1);
        part.size = (size_t)(from - part.data) + rest;
    }
}

/* Add one line with the files of a scope (NULL: of all scopes) that are due in sample `number` (0: all
 * files). */
static void sample(const char *only, unsigned number) {
    char head[128];
    snprintf(head, sizeof head, "{\"time\":%.6f,\"monotonic\":%.6f,\"own\":%.6f,\"scopes\":{",
             seconds(CLOCK_REALTIME), seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID));
    add_text(&out, head);
    const char *scope = NULL;
    bool first = true;
    for (size_t i = 0; i < file_count; i++) {
        struct file *f = &files[i];
        if (only && strcmp(only, f->scope) != 0)
            continue;
        if (!scope || strcmp(scope, f->scope) != 0) {
            add_text(&out, scope ? "}," : "");
            add_quoted(&out, f->scope, strlen(f->scope));
            add_text(&out, ":{");
            scope = f->scope;
            first = true;
        }
        if (number % f->every != 0)
            continue;
        if (f->fd == NOT_YET && (f->fd = open(f->path, O_RDONLY | O_CLOEXEC)) < 0)
            f->fd = NEVER;
        if (f->fd == NEVER || !read_whole(f->fd))
            continue;
        cut_down(f->name);
        add_text(&out, first ? "" : ",");
        add_quoted(&out, f->name, strlen(f->name));
        add_text(&out, ":");
        add_quoted(&out, part.data, part.size);
        first = false;
    }
    add_text(&out, scope ? "}}}\n" : "}}\n");
    if (out.size > WRITE_AT)
        flush();
}

static void hold(const char *scope, const char *name, unsigned every, const char *path) {
    files = need(realloc(files, (file_count + 1) * sizeof *files));
    files[file_count++] = (struct file){need(strdup(scope)), need(strdup(name)), need(strdup(path)),
                                        .fd = NOT_YET, .every = every};
}

static void let_go(const char *scope) {
    size_t kept = 0;
    for (size_t i = 0; i < file_count; i++) {
        if (strcmp(files[i].scope, scope) != 0) {
            files[kept++] = files[i];
            continue;
        }
        if (files[i].fd >= 0)
            close(files[i].fd);
        free(files[i].scope);
        free(files[i].name);
        free(files[i].path);
    }
    file_count = kept;
}

static void obey(char *line) {
    char *rest = line;
    const char *verb = strsep(&rest, " "), *scope = strsep(&rest, " ");
    if (!scope)
        return;
    if (*verb == '+') {
        const char *name = strsep(&rest, " "), *every = strsep(&rest, " ");
        long n = every ? strtol(every, NULL, 10) : 0;
        if (rest && n > 0)
            hold(scope, name, (unsigned)n, rest);
        return;
    }
    if (*verb == '-') {
        let_go(scope);
    } else {
        sample(scope, 0);
        flush();
    }
}

/* Execute the complete lines that have arrived. Return false at the end of COMMANDS. */
static bool listen_to(int commands) {
    static char line[LINE_MAX_BYTES];
    static size_t size;
    ssize_t n = read(commands, line + size, sizeof line - size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (n <= 0)
        return false;
    size += (size_t)n;
    char *begin = line, *end;
    while ((end = memchr(begin, '\n', size - (size_t)(begin - line)))) {
        *end = 0;
        obey(begin);
        begin = end + 1;
    }
    size -= (size_t)(begin - line);
    memmove(line, begin, size);
    return size < sizeof line;
}

static double number_of(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*end || !(value >= 0)) {
        fail_report("%s is no number", text);
        exit(WRONG_USE);
    }
    return value;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fail_report("usage: nm-sample COMMANDS OUT PERIOD_MS FLUSH_MS");
        return WRONG_USE;
    }
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is said like a full disk */
    int commands = (int)number_of(argv[1]);
    double period = number_of(argv[3]) / 1e3, flush_every = number_of(argv[4]) / 1e3;
    out_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (out_fd < 0) {
        fail_report("%s: %s", argv[2], strerror(errno));
        return NO_WRITE;
    }
    double due = seconds(CLOCK_MONOTONIC) + period, flush_at = due + flush_every;
    for (unsigned number = 1;;) {
        double wait = due - seconds(CLOCK_MONOTONIC);
        struct timespec left = {0, 0};
        if (wait > 0)
            left = (struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
        struct pollfd heard = {.fd = commands, .events = POLLIN};
        if (ppoll(&heard, 1, &left, NULL) > 0) {
            if (!listen_to(commands))
                break;
            continue;
        }
        double now = seconds(CLOCK_MONOTONIC);
        if (now < due)
            continue;
        sample(NULL, number++);
        if (now >= flush_at) {
            flush();
            flush_at = now + flush_every;
        }
        /* After a suspend, missed samples are not made up for. Each sample contains its time. */
        due = due + period > now ? due + period : now;
    }
    sample(NULL, 0);
    flush();
    return 0;
}
