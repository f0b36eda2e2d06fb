/* What the parts of nm-box share: errors, lists of arguments, cgroups, reports. Knows no benchmark and no
 * MPI. */
#ifndef NM_BOX_H
#define NM_BOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { EXIT_BOX = 111, EXIT_NOT_FOUND = 127, LIST_MAX = 64 };

struct list {
    const char *items[LIST_MAX];
    int count;
};

/* Reports "STEP: <strerror> (DETAIL)" by fail_report() and exits 111. */
_Noreturn void die(const char *step, const char *detail);
/* Reports "WHAT (DETAIL)" by fail_report() and exits 111: the request itself is wrong. */
_Noreturn void refuse(const char *what, const char *detail);

void append(struct list *list, const char *item, const char *option);
/* CLOCK_MONOTONIC in nanoseconds: the clock of Python's time.monotonic_ns. */
uint64_t now_ns(void);
/* One line, one write: the reader may have gone (then SIGPIPE ends us, as it should). */
void report(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number of at most `limit`, or refuse(). */
long number(const char *text, long limit, const char *option);
/* Dies with the thread that started us; must follow every change of credentials, which clears it. */
void die_with_parent(void);
/* Executes argv or exits: 127 when there is no such program, 111 otherwise. nm-rank is done in this process.
 */
_Noreturn void execute(char *const argv[]);
/* Ends as a child with this wait status ended: same status, or the same signal. */
_Noreturn void end_with(int status);
/* Waits for the child and ends as it ended. */
_Noreturn void end_like(pid_t child);
/* Sets the handler of every signal that is passed on to a command and is not ignored; blocks or unblocks
 * them.
 */
void handle_signals(void (*handler)(int), int how);
/* Restricts this process to CPUs given as "0,2,5". */
void pin(const char *cpus);

/* Joins every v1 cgroup; returns a descriptor of the v2 one for fork_into, or -1. */
int join_cgroups(const struct list *directories);
/* fork(), the child born inside the v2 cgroup where one is given. */
pid_t fork_into(int unified);

/* layer: directory with the upper layer, which then outlives the instance; NULL for one that ends with it.
 * tree: what the overlay is made over; scratch: where a tmpfs with all of it is mounted; own_pids: with a
 * /proc of its own, else the machine's. */
struct root {
    const char *tree;
    const char *layer;
    const char *scratch;
    const struct list *binds;
    const struct list *read_only;
    bool rootless;
    bool own_network;
    bool own_pids;
    bool shared_shm; /* /dev/shm goes with the ipc namespace: POSIX's shared memory lies there */
};
void make_read_only(const char *path);
/* Made, or there already, with this mode whatever the caller's umask. */
void directory(const char *path, mode_t mode);
/* Makes root/a/b/c of /a/b/c. */
void make_parents(const char *path);
/* The overlay alone, at scratch/root; the process stands in scratch afterwards. */
void lay_root(const struct root *plan);
/* The overlay with own /proc, /sys, /dev/shm, /tmp; the process stands in its / afterwards. */
void build_root(const struct root *plan);

int start_main(int argc, char **argv);
int enter_main(int argc, char **argv);
int agent_main(int argc, char **argv);
int by_rank_main(int argc, char **argv);
int hold_main(int argc, char **argv);
int relay_main(int argc, char **argv);
int wrap_main(int argc, char **argv);
int call_main(int argc, char **argv);

struct entry;
/* Takes over the environment and the directory of the caller of nm-box call, and runs argv as a child that
 * gets its signals and is killed when it dies. entry->call: the path that it gave. */
_Noreturn void answer(const struct entry *entry, char *const argv[]);
int cma_main(int argc, char **argv);
int silent_main(int argc, char **argv);
int seat_main(int argc, char **argv);
int guest_main(int argc, char **argv);
int multiplex_main(int argc, char **argv);
int tap_main(int argc, char **argv);
/* A descriptor of the character device of a macvtap of this network namespace, for QEMU. */
int open_macvtap(const char *interface);
int kvm_main(int argc, char **argv);
int trip_main(int argc, char **argv);
int reap_main(int argc, char **argv);
int cpuid_main(int argc, char **argv);
/* A stream connection to a Unix socket. */
int connect_to(const char *path);
/* A line to an agent that listens at "tcp:ADDRESS:PORT" or behind a Unix socket, and has spoken. Calls until
 * then, or refuse() after so many seconds. key_file: holds what it must be told first, NULL for nothing. */
int call_agent(const char *where, const char *key_file, long seconds);
/* A line to the agent that a command leads to by its standard input and output. It ends with us. */
int start_agent(char *const command[]);

/* Enters the cgroups and the namespaces of pid (0: the cgroups only; only: those kinds, such as "net,uts",
 * NULL for all) and runs argv there. */
struct entry {
    const char *call; /* see answer(); NULL where the caller is no nm-box call */
    const char *only;
    bool signal_grandchildren;
    bool by_init;  /* the first process of the instance starts the command: see ask_init() */
    bool detached; /* so asked, we do not wait for it */
    pid_t pid;
    bool user_namespace;
    const char *cpus;
    const char *label;
    const char *directory;
    struct list cgroups;
};
_Noreturn void enter(const struct entry *entry, char *const argv[]);
/* Has argv run by the first process of the instance, which has entry->label as its label, and ends as the
 * command does; detached: as soon as it runs. directory: where it starts, if there is one, else /. */
_Noreturn void ask_init(const struct entry *entry, const char *directory, char *const argv[]);
/* Joins the user namespace, if it is wanted, and the network namespace of entry->pid. */
void join_its_network(const struct entry *entry);
/* A descriptor of the namespace at path; -1 where there is no path. */
int open_namespace(const char *path);
/* Joins it, where there is one, and closes the descriptor. */
void join_namespace(int fd, int kind, const char *path);
/* Brings the loopback device of the current network namespace up. */
void loopback_up(void);

#endif
