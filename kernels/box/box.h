/* Declarations that the parts of nm-box share: errors, lists of arguments, cgroups, reports. nm-box knows no
 * benchmark and no MPI. */
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

/* Report "STEP: <strerror> (DETAIL)" by fail_report(), and exit with status 111. */
_Noreturn void die(const char *step, const char *detail);
/* Report "WHAT (DETAIL)" by fail_report(), and exit with status 111, since the arguments are wrong. */
_Noreturn void refuse(const char *what, const char *detail);

void append(struct list *list, const char *item, const char *option);
/* Return CLOCK_MONOTONIC in nanoseconds, like Python's time.monotonic_ns(). */
uint64_t now_ns(void);
/* Write one line by one write(). If the reader has gone, SIGPIPE ends this process, as intended. */
void report(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Return the value of an option as a number of at most `limit`, or refuse(). */
long number(const char *text, long limit, const char *option);
/* Let the kernel kill this process when the thread that started it ends. A change of credentials clears this
 * setting, so this must be called again after each. */
void die_with_parent(void);
/* Execute argv. On failure, exit with status 127 if there is no such program, 111 otherwise. nm-rank is not
 * executed, but runs in this process. */
_Noreturn void execute(char *const argv[]);
/* Execute argv from a sealed copy of the program in memory. argv[0]: its absolute path. Where no copy can be
 * made, like execute(). */
_Noreturn void execute_copy(char *const argv[]);
/* End like a child with this wait status: with the same exit status or by the same signal. */
_Noreturn void end_with(int status);
/* Wait for the child, and end like it. */
_Noreturn void end_like(pid_t child);
/* Set the handler of all signals that are passed on to a command, except ignored ones, and block or unblock
 * these signals. how: SIG_BLOCK or SIG_UNBLOCK. */
void handle_signals(void (*handler)(int), int how);
/* Restrict this process to CPUs given as "0,2,5". */
void pin(const char *cpus);

/* Join all version 1 cgroups. Return a descriptor of the version 2 cgroup for fork_into(), or -1 if there is
 * none. */
int join_cgroups(const struct list *directories);
/* Like fork(), but the child is created in the version 2 cgroup, unless `unified` is -1. */
pid_t fork_into(int unified);

/* Directories that are mounted in an instance: from sources[i], at targets[i] inside. A target that lies
 * inside another one comes after it. */
struct binds {
    struct list sources, targets;
    bool read_only[LIST_MAX];
};
/* Add a directory that is mounted at the same path inside. */
void add_bind(struct binds *binds, const char *path, bool read_only, const char *option);
/* Change the target of the bind that was added last. */
void place_bind(struct binds *binds, const char *target);
/* Copy the mount trees of all sources. trees: receives a descriptor of each. */
void copy_trees(const struct binds *binds, int *trees);
/* Show each source at its target, which must exist, in a new mount namespace of this process; nothing if
 * there are no binds. */
void bind_here(const struct binds *binds);

/* The plan of a root. tree: lower directory of the overlay; scratch: where a tmpfs for everything else is
 * mounted; layer: directory of the upper layer, which then outlives the instance, or NULL for an upper layer
 * in the tmpfs; own_pids: whether a new /proc is mounted instead of the machine's. */
struct root {
    const char *tree;
    const char *layer;
    const char *scratch;
    const struct binds *binds;
    bool rootless;
    bool own_network;
    bool own_pids;
    bool shared_shm; /* /dev/shm goes with the ipc namespace: POSIX's shared memory lies there */
};
void make_read_only(const char *path);
/* Create a directory unless it exists, and set its mode independently of the umask. */
void directory(const char *path, mode_t mode);
/* Create top/a/b/c for the path /a/b/c. */
void make_parents(const char *top, const char *path);
/* Mount only the overlay, at scratch/root. The working directory is scratch afterwards. */
void lay_root(const struct root *plan);
/* Mount the overlay with new /proc, /sys, /dev/shm and /tmp, and make it the root of this process. */
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
/* The inner end of nm-box call: take over the environment and directory of its caller, and run argv as a
 * child, which gets the caller's signals and is killed when the caller ends. entry->call: path prefix of the
 * call's files. */
_Noreturn void answer(const struct entry *entry, char *const argv[]);
int cma_main(int argc, char **argv);
int silent_main(int argc, char **argv);
int seat_main(int argc, char **argv);
int guest_main(int argc, char **argv);
int multiplex_main(int argc, char **argv);
int tap_main(int argc, char **argv);
/* Return a descriptor, for QEMU, of the character device of a macvtap in this network namespace. */
int open_macvtap(const char *interface);
int kvm_main(int argc, char **argv);
int trip_main(int argc, char **argv);
int reap_main(int argc, char **argv);
void run_script_of_link(int argc, char **argv);
int cpuid_main(int argc, char **argv);
/* Return a stream connection to a Unix socket. */
int connect_to(const char *path);
/* Connect to an agent that listens at "tcp:ADDRESS:PORT" or behind a Unix socket, and return the connection
 * when the agent has answered. Tries again until then, or refuse() after `seconds`. key_file: file with the
 * key to send first; NULL for none. */
int call_agent(const char *where, const char *key_file, long seconds);
/* Start a command whose standard streams lead to an agent, such as ssh, and return a connection to them. The
 * command ends with this process. */
int start_agent(char *const command[]);

/* How to run a command in an instance: in the cgroups, and in the namespaces of pid (0: none). only: kinds of
 * namespaces to enter, such as "net,uts"; NULL for all. */
struct entry {
    const char *call; /* see answer(); NULL if the caller is not nm-box call */
    const char *only;
    bool signal_grandchildren;
    bool copy;     /* whether to execute_copy() */
    bool detached; /* with init: whether to end without waiting for the command */
    pid_t pid;
    bool user_namespace;
    const char *cpus;
    const char *label;
    const char *init; /* name of the socket of the first process, which then starts the command; or NULL */
    const char *directory;
    struct list cgroups;
    struct binds binds; /* see bind_here() */
};
_Noreturn void enter(const struct entry *entry, char *const argv[]);
/* Let the first process of an instance run argv, and end like the command or, if detached, as soon as the
 * command runs. directory: working directory of the command; / if it does not exist. */
_Noreturn void ask_init(const struct entry *entry, const char *directory, char *const argv[]);
/* Join the network namespace of entry->pid and, if requested, its user namespace. */
void join_its_network(const struct entry *entry);
/* Return a descriptor of the namespace at a path; -1 if the path is NULL. */
int open_namespace(const char *path);
/* Join a namespace of open_namespace(), unless fd is -1, and close the descriptor. */
void join_namespace(int fd, int kind, const char *path);
/* Bring up the loopback device of the current network namespace. */
void loopback_up(void);

#endif
