/* What nm-box asks of nm-init: one datagram to its socket, which has an abstract name, so that it needs no
 * file and is found by whoever is in the network namespace of the instance. */
#ifndef NM_REQUEST_H
#define NM_REQUEST_H

#include <stdint.h>

/* Follows the leading zero byte of the socket's name; the label of the instance follows it. */
#define NM_REQUEST_NAME "nm-init/"

enum {
    NM_DESCRIPTORS = 64, /* most that go with a request */
    NM_LIMITS = 16,      /* RLIM_NLIMITS */
    NM_CPU_BYTES = 1024  /* of a CPU mask: 8192 CPUs */
};

/* The datagram. With it go these descriptors, in this order: the reply socket, the file with struct
 * nm_command, the version 2 cgroup if there is one, `groups` files to write "0" to, `kept` for the command.
 */
struct nm_request {
    uint32_t detached; /* has the streams of the first process, and goes on when the reply socket is closed */
    uint32_t unified;
    uint32_t groups;
    uint32_t kept;
};

/* The head of a file. Behind it: directory, `names` paths to try, argv and environment, each text with its
 * final zero. */
struct nm_command {
    uint64_t blocked, ignored; /* signals: the kernel's sigset_t */
    uint64_t limits[NM_LIMITS][2];
    uint32_t mask;
    uint32_t cpu_bytes;
    uint32_t names, arguments, variables;
    int32_t kept[NM_DESCRIPTORS]; /* numbers that the descriptors have in the command */
    uint8_t cpus[NM_CPU_BYTES];
};

/* What comes back, a message each. The first one that the command sends carries its credentials, so that its
 * PID is known where the request came from. */
enum nm_step { NM_BORN, NM_ENDED, NM_FORK, NM_READ, NM_CGROUP, NM_CPUS, NM_PLACE, NM_EXEC };
struct nm_reply {
    int32_t step;
    int32_t value; /* wait status of NM_ENDED; else errno */
};

#endif
