/* nm-guest: the first process of a guest. It reports the times of its steps to the host, by the guest's
 * clock. */
#define _GNU_SOURCE
#include "fail.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

uint64_t guest_now(void) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void say(const char *step, const char *detail) {
    fail_report("%s: %s (%s)", step, strerror(errno), detail);
}

void begin_step(const char *name) {
    fprintf(stderr, "nm-step: %s\n", name);
}

void give_up(const char *step, const char *detail) {
    say(step, detail);
    if (getpid() != 1)
        exit(1); /* the machine must not be ended */
    sync();
    usleep(50000); /* a console over a slow line is to get it all */
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

static bool copy_word(char *to, size_t room, const char *word, const char *name) {
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0)
        return false;
    if (snprintf(to, room, "%s", word + length) >= (int)room)
        give_up("too long on the kernel command line", name);
    return true;
}

struct given read_given(void) {
    static char line[8192];
    struct given given = {.name = ""};
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (size < 0)
        give_up("read", "/proc/cmdline");
    close(fd);
    line[size] = '\0';
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n"))
        (void)(copy_word(given.name, sizeof given.name, word, "nm.name=") ||
               copy_word(given.root, sizeof given.root, word, "nm.root=") ||
               copy_word(given.upper, sizeof given.upper, word, "nm.upper=") ||
               copy_word(given.swap, sizeof given.swap, word, "nm.swap=") ||
               copy_word(given.tools, sizeof given.tools, word, "nm.tools=") ||
               copy_word(given.net, sizeof given.net, word, "nm.net=") ||
               copy_word(given.port, sizeof given.port, word, "nm.port=") ||
               copy_word(given.key, sizeof given.key, word, "nm.key=") ||
               copy_word(given.mac, sizeof given.mac, word, "nm.mac=") ||
               copy_word(given.line, sizeof given.line, word, "nm.line=") ||
               copy_word(given.tune, sizeof given.tune, word, "nm.tune="));
    return given;
}

static void mount_own(const char *type, const char *at, const char *options) {
    mkdir(at, 0755);
    if (mount(type, at, type, 0, options) != 0 && errno != EBUSY)
        give_up("mount", at);
}

int main(int argc, char **argv) {
    fail_program("nm-guest"); /* the kernel starts it as /init */
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "serve") == 0 && getpid() != 1) {
        if (argc == 3)
            bear_mark(argv[2]);
        struct utsname system;
        char hello[512];
        uname(&system);
        snprintf(hello, sizeof hello, "{\"kernel\": \"%s\"", system.release);
        serve_here(hello);
    }
    if (getpid() != 1) {
        int status = own_command(argc - 1, argv + 1);
        if (status < 0)
            fail_report("this program is the first process of a guest");
        return status < 0 ? 2 : status;
    }
    uint64_t begun = guest_now(), modules = 0;
    mount_own("devtmpfs", "/dev", NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; console >= 0 && fd < 3; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);
    mount_own("proc", "/proc", NULL);
    mount_own("sysfs", "/sys", NULL);
    struct given given = read_given();
    begin_step("modules");
    make_root(&given, &modules);
    uint64_t root = guest_now();
    if (given.name[0] != '\0' && sethostname(given.name, strlen(given.name)) != 0)
        say("sethostname", given.name);
    begin_step("swap and network");
    start_swap(&given);
    make_network(&given);
    uint64_t network = guest_now();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("HOME", "/root", 1);
    struct utsname system;
    char hello[512];
    uname(&system);
    begin_step("agent");
    snprintf(hello, sizeof hello,
             "{\"kernel\": \"%s\", \"init\": %" PRIu64 ", \"modules\": %" PRIu64 ", \"root\": %" PRIu64
             ", \"network\": %" PRIu64,
             system.release, begun, modules, root, network);
    serve(&given, hello);
}
