/* What the parts of nm-guest share. It is the first process of a guest: it makes the root from what the
 * kernel command line says, then runs commands for the host. "nm-guest serve" runs commands on a machine that
 * runs already, for whoever holds the other ends of its standard input and output. Linked statically: it has
 * to run in any image.
 */
#ifndef NM_GUEST_H
#define NM_GUEST_H

#include <stdbool.h>
#include <stdint.h>

/* Words of the kernel command line, without their prefix "nm."; empty where not given. root: DEVICE:FSTYPE,
 * or TAG:virtiofs, a device being a path or serial:NAME; upper: a device with an ext4 for what is written,
 * else memory; swap: a device; tools: where the directory /tools of the initramfs is to be seen; net:
 * INTERFACE,ADDRESS/PREFIX[,MTU[,DESTINATION/PREFIX:GATEWAY]...]; port: virtio:NAME, tty:DEVICE or tcp:PORT;
 * key: what a TCP peer must say first, in hex; mac: of net's interface, which gets its name then; line:
 * MAC,ADDRESS/PREFIX of an interface for the agent alone; tune: what is set at net's interface and at its
 * routes (tune.c). */
struct given {
    char name[65], root[128], upper[64], swap[64], tools[512], net[1024], port[128], key[129], mac[18],
        line[64], tune[256];
};

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t guest_now(void);
/* Reports "STEP: <strerror> (DETAIL)" by fail_report() on the console, which the host keeps. */
void say(const char *step, const char *detail);
/* A line on the console, "nm-step: NAME": what is begun, for a host that waits in vain. */
void begin_step(const char *name);
/* The same as say(), and the guest ends; on a machine that runs already, this process alone. */
_Noreturn void give_up(const char *step, const char *detail);

struct given read_given(void);
/* Until the root stands; `when` gets the time at which modules were loaded. */
void make_root(const struct given *given, uint64_t *modules);
void start_swap(const struct given *given);
void make_network(const struct given *given);
/* Sets the interface and its routes as text says, KEY=VALUE[,...]: rto_min (ms), congestion_control,
 * queue_length (packets), tso, gso, gro (0 or 1); gives up where the kernel refuses. */
void tune(const char *interface, const char *text);
/* How it stands, as JSON; a status. namespace: path of its network namespace, NULL for that of this process.
 */
int print_network(const char *interface, const char *namespace);
/* Waits for the interface of that MAC, and gives it the name. */
void name_interface(const char *mac, const char *name);
/* Runs commands for whoever holds the other end of the port; never returns. hello: sent first. */
_Noreturn void serve(const struct given *given, const char *hello);
/* The same by the standard streams of this process. At their end all that it has started is ended, and it is
 * too. */
_Noreturn void serve_here(const char *hello);

enum { NAMESPACES_MAX = 256 };
/* Makes network namespaces in /run/netns, from NAME=INTERFACE,ADDRESS/PREFIX[,MTU] of each. The first one has
 * a bridge that connects it to the others; tuning: see tune(), for the interfaces of the others. A status.
 * After a failure none of them is left; a namespace that was there before stays. */
int make_namespaces(const char *tuning, int count, char **words);
/* Removes them, as soon as nothing runs in them; a status. */
int drop_namespaces(int count, char **names);

/* Commands that the agent has in itself (put, get, fill, drain, holdings, network, become, add-line,
 * drop-line, join, part); -1: it is none of them. */
int own_command(int argc, char **argv);
/* Of the ranks with this mark (NAME=value) in their environment; a status. */
int print_holdings(const char *mark);
/* Adds a line to a file, whose contents until then it prints, or drops the line again; a status. */
int change_line(const char *path, const char *line, bool add);
/* A guest that was restored from the state of another gets its own name, time and network; a status. */
int become(const char *name, const char *nanoseconds, const char *mac, const char *net, const char *tune);

#endif
