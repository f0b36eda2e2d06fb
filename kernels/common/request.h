/* Requests of nm-box to nm-init, the first process of an instance, to start a command. A request is the only
 * message of a connection to nm-init's socket; the answers come back by it. The socket has an abstract name,
 * so it needs no file, and every process in the network namespace of the instance can reach it. Both sides
 * therefore check that the other one is a process of the same user. */
#ifndef NM_REQUEST_H
#define NM_REQUEST_H

#include <stdint.h>

/* The socket's name is a zero byte, this text, and a text that other users cannot predict: they could else
 * take the name first. */
#define NM_REQUEST_NAME "nm-init/"

enum {
    NM_DESCRIPTORS = 64, /* maximum number of descriptors in a request */
    NM_LIMITS = 16,      /* RLIM_NLIMITS */
    NM_CPU_BYTES = 1024  /* size of a CPU mask: 8192 CPUs */
};

/* The message. These descriptors are passed with it, in this order: the file with struct nm_command; the
 * directory of the version 2 cgroup, if `unified`; `groups` files of other cgroups, to which the command
 * writes "0" to join them; `kept` descriptors that the command gets. */
struct nm_request {
    /* The command has the standard streams of the first process, and outlives the connection. */
    uint32_t detached;
    uint32_t unified;
    uint32_t groups;
    uint32_t kept;
};

/* The head of the file that describes a command. It is followed by the working directory, `names` paths of
 * the program to try, `arguments` arguments and `variables` environment variables; each text ends with a zero
 * byte. */
struct nm_command {
    uint64_t blocked, ignored; /* sets of signals, as the kernel's sigset_t */
    uint64_t limits[NM_LIMITS][2];
    uint32_t mask;
    uint32_t cpu_bytes;
    uint32_t names, arguments, variables;
    int32_t kept[NM_DESCRIPTORS]; /* numbers that the descriptors have in the command */
    uint8_t cpus[NM_CPU_BYTES];
};

/* The answers, one message each. The first one comes from the command itself with its credentials, so that
 * the requester learns the command's PID in its own PID namespace. NM_BORN: the command is about to execute
 * the program; NM_ENDED: it has ended; all others: the step that failed. */
enum nm_step { NM_BORN, NM_ENDED, NM_FORK, NM_READ, NM_CGROUP, NM_CPUS, NM_PLACE, NM_EXEC };
struct nm_reply {
    int32_t step;
    int32_t value; /* wait status for NM_ENDED; else errno */
};

#endif
