/* nm-box hold: a process that only keeps namespaces alive: for users without root, the user namespace that
 * all instances share, and the network namespaces in it. It ends with the process that started it. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
        die("write", path);
}

/* Become root in a new user namespace, which contains no other user. */
static void new_user_namespace(void) {
    char users[64], groups[64];
    if (snprintf(users, sizeof users, "0 %u 1", geteuid()) < 0 ||
        snprintf(groups, sizeof groups, "0 %u 1", getegid()) < 0)
        die("format", "uid_map");
    if (unshare(CLONE_NEWUSER) != 0)
        die("unshare", "user namespace");
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", users);
    write_file("/proc/self/gid_map", groups);
}

static void join_user_namespace(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWUSER) != 0 || close(fd) != 0)
        die("setns", path);
}

int hold_main(int argc, char **argv) {
    static const struct option options[] = {{"new-user", no_argument, NULL, 'U'},
                                            {"user-namespace", required_argument, NULL, 'u'},
                                            {"report-fd", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    const char *user = NULL;
    bool new_user = false;
    int report_fd = -1;
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (option) {
        case 'U':
            new_user = true;
            break;
        case 'u':
            user = optarg;
            break;
        case 'f':
            report_fd = (int)number(optarg, 1023, "--report-fd");
            break;
        default:
            refuse("unknown option", "hold");
        }
    }
    if (report_fd < 0 || optind != argc || (new_user == (user != NULL)))
        refuse("hold needs --report-fd and either --new-user or --user-namespace", "hold");
    if (new_user)
        new_user_namespace();
    else
        join_user_namespace(user);
    if (unshare(CLONE_NEWNET) != 0)
        die("unshare", "network namespace");
    loopback_up();
    die_with_parent();
    report(report_fd, "{\"pid\": %d}\n", (int)getpid());
    if (close(report_fd) != 0)
        die("close", "report descriptor");
    for (;;)
        pause();
}
