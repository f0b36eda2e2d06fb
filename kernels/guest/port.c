/* The agent's line to the host: a virtio-serial port, a separate console, or a TCP connection. */
#define _GNU_SOURCE
#include "port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

enum { PORT_SECONDS = 10, KEY_SECONDS = 5 };

/* Find the device of the virtio port with this name. Return false if there is none (yet). */
static bool find_virtio(const char *name, char *device, size_t room) {
    DIR *ports = opendir("/sys/class/virtio-ports");
    bool found = false;
    for (struct dirent *entry; ports != NULL && !found && (entry = readdir(ports)) != NULL;) {
        char path[512], text[128];
        snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        if (fgets(text, sizeof text, file) != NULL) {
            text[strcspn(text, "\n")] = '\0';
            found = strcmp(text, name) == 0;
        }
        fclose(file);
        if (found)
            snprintf(device, room, "/dev/%s", entry->d_name);
    }
    if (ports != NULL)
        closedir(ports);
    return found;
}

static int open_device(const char *device) {
    int fd = open(device, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    struct termios line;
    if (fd >= 0 && tcgetattr(fd, &line) == 0) { /* a console would change our bytes */
        cfmakeraw(&line);
        tcsetattr(fd, TCSANOW, &line);
        tcflush(fd, TCIOFLUSH);
    }
    return fd;
}

/* Return whether the peer sends the key, as a line, in time. */
static bool knows(int fd, const char *key) {
    const struct timeval limit = {.tv_sec = KEY_SECONDS};
    char said[130] = "";
    size_t length = strlen(key), have = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while (have < length + 1) {
        ssize_t got = read(fd, said + have, length + 1 - have);
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    unsigned char differs = said[length] != '\n';
    for (size_t i = 0; i < length; i++) /* in constant time, so that the time reveals nothing about the key */
        differs |= (unsigned char)(said[i] ^ key[i]);
    return differs == 0;
}

static int accept_one(int port, const char *key) {
    static int listening = -1;
    const int on = 1;
    if (listening < 0) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listening < 0 || setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            bind(listening, (const struct sockaddr *)&any, sizeof any) != 0 || listen(listening, 4) != 0)
            give_up("listen", "nm.port");
    }
    for (;;) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (knows(fd, key) && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
            return fd;
        close(fd);
    }
}

int open_port(const struct given *given) {
    char device[300];
    if (strncmp(given->port, "tcp:", 4) == 0) {
        if (strlen(given->key) < 32)
            give_up("tcp needs nm.key of 32 digits or more", "nm.port");
        return accept_one(atoi(given->port + 4), given->key);
    }
    for (int tries = 0; tries < PORT_SECONDS * 200; tries++) {
        bool there = true;
        if (strncmp(given->port, "tty:", 4) == 0)
            snprintf(device, sizeof device, "%s", given->port + 4);
        else if (strncmp(given->port, "virtio:", 7) == 0)
            there = find_virtio(given->port + 7, device, sizeof device);
        else
            give_up("nm.port is none of virtio:NAME, tty:DEVICE, tcp:PORT", given->port);
        int fd = there ? open_device(device) : -1;
        if (fd >= 0)
            return fd;
        usleep(5000);
    }
    give_up("the port to the host: has the kernel its driver?", given->port);
}
