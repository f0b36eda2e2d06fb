/* Connects to an agent: by TCP; through a Unix socket that another program (ssh -L) forwards; or through the
 * standard streams of a program (ssh) that starts the agent. */
#define _GNU_SOURCE
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_AGAIN_US = 20000, LONGEST_KEY = 128 };

/* Connect to "tcp:ADDRESS:PORT" (IPv4). */
static int by_tcp(const char *where) {
    char text[64];
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (snprintf(text, sizeof text, "%s", where + 4) >= (int)sizeof text)
        refuse("too long", where);
    char *port = strrchr(text, ':');
    if (port == NULL)
        refuse("not tcp:ADDRESS:PORT", where);
    *port++ = '\0';
    address.sin_port = htons((uint16_t)number(port, 65535, "--connect"));
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        refuse("not an IPv4 address", where);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        die("socket", where);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static int by_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        refuse("path too long", path);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        die("socket", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static void read_key(const char *file, char key[LONGEST_KEY + 2]) {
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, key, LONGEST_KEY);
    if (got <= 0)
        die("read", file);
    close(fd);
    key[got] = '\0';
    key[strcspn(key, "\n")] = '\0';
    strcat(key, "\n");
}

/* Wait for events on fd. Return false if none occurs before `end`. */
static bool await(int fd, short events, uint64_t end) {
    struct pollfd asked = {.fd = fd, .events = events};
    uint64_t now = now_ns();
    return now < end && poll(&asked, 1, (int)((end - now) / 1000000) + 1) > 0;
}

int call_agent(const char *where, const char *key_file, long seconds) {
    char key[LONGEST_KEY + 2] = "";
    uint64_t end = now_ns() + (uint64_t)seconds * 1000000000u;
    if (key_file != NULL)
        read_key(key_file, key);
    for (bool tcp = strncmp(where, "tcp:", 4) == 0; now_ns() < end; usleep(LOOK_AGAIN_US)) {
        char first;
        int fd = tcp ? by_tcp(where) : by_socket(where);
        if (fd < 0)
            continue;
        /* The agent sends the first frame after it has received the key. Until then the connection may lead
         * nowhere: a guest without an address does not answer at all, so each attempt waits for a short time
         * only. */
        uint64_t patience = now_ns() + 1000000000u, limit = patience < end ? patience : end;
        if (await(fd, POLLOUT, limit) && write(fd, key, strlen(key)) == (ssize_t)strlen(key) &&
            await(fd, POLLIN, limit + 4000000000u) && recv(fd, &first, 1, MSG_PEEK) == 1)
            return fd;
        close(fd);
    }
    refuse("no agent answers", where);
}

int start_agent(char *const command[]) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        die("socketpair", command[0]);
    pid_t child = fork();
    if (child < 0)
        die("fork", command[0]);
    if (child == 0) {
        die_with_parent();
        if (dup2(ends[1], STDIN_FILENO) < 0 || dup2(ends[1], STDOUT_FILENO) < 0)
            die("dup2", command[0]);
        execvp(command[0], command);
        die("exec", command[0]);
    }
    close(ends[1]);
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
        die("fcntl", command[0]);
    return ends[0];
}
