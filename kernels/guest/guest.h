/* Declarations that the parts of nm-guest share. nm-guest is the first process of a guest: it sets up the
 * root, the network and swap as the kernel command line says, and then runs commands for the host. "nm-guest
 * serve" runs commands on a machine that is running already, for the process at the other end of its standard
 * streams. It is linked statically, since it must run in any image. */
#ifndef NM_GUEST_H
#define NM_GUEST_H

#include <stdbool.h>
#include <stdint.h>

/* Words of the kernel command line, without their prefix "nm."; empty if not given.
 *
 * name: host name.
 * root: DEVICE:FSTYPE, or TAG:virtiofs. A device is a path, or serial:NAME for a virtio disk.
 * upper: device with an ext4 for files that are written; memory if not given.
 * swap: device for swap.
 * tools: path at which the directory /tools of the initramfs is mounted.
 * net: INTERFACE,ADDRESS/PREFIX[,MTU[,DESTINATION/PREFIX:GATEWAY]...].
 * port: line of the agent: virtio:NAME, tty:DEVICE or tcp:PORT.
 * key: text in hex that a TCP peer must send first.
 * mac: MAC of the interface of `net`, which is renamed to its name there.
 * line: MAC,ADDRESS/PREFIX of an interface that only the agent uses.
 * tune: settings of the interface of `net` and its routes; see tune(). */
struct given {
    char name[65], root[128], upper[64], swap[64], tools[512], net[1024], port[128], key[129], mac[18],
        line[64], tune[256];
};

/* Return CLOCK_MONOTONIC in nanoseconds. */
uint64_t guest_now(void);
/* Report "STEP: <strerror> (DETAIL)" by fail_report() on the console, which the host records. */
void say(const char *step, const char *detail);
/* Print "nm-step: NAME" on the console, so that the host knows which step did not end if it waits in vain. */
void begin_step(const char *name);
/* Do the same as say(), and end the guest; on a machine that was running before, only this process. */
_Noreturn void give_up(const char *step, const char *detail);

struct given read_given(void);
/* Load modules, and mount the root. *modules gets the time (guest_now()) at which the modules were loaded. */
void make_root(const struct given *given, uint64_t *modules);
void start_swap(const struct given *given);
void make_network(const struct given *given);
/* Change settings of an interface and its routes. text: KEY=VALUE[,...] with the keys rto_min (ms),
 * congestion_control, queue_length (packets), tso, gso, gro (0 or 1). Gives up if the kernel refuses one. */
void tune(const char *interface, const char *text);
/* Print the settings of an interface and its routes as JSON. namespace: path of its network namespace; NULL
 * for that of this process. Return an exit status, like all functions below that return int. */
int print_network(const char *interface, const char *namespace);
/* Wait for the interface with this MAC, and give it the name. */
void name_interface(const char *mac, const char *name);
/* Run commands for the host over the port. Never returns. hello: the payload of the first frame (HELLO). */
_Noreturn void serve(const struct given *given, const char *hello);
/* Do the same over the standard streams of this process. At their end, end all processes that were started,
 * and exit. */
_Noreturn void serve_here(const char *hello);

enum { NAMESPACES_MAX = 256 };
/* Create network namespaces in /run/netns. words: NAME=INTERFACE,ADDRESS/PREFIX[,MTU] of each. The first one
 * gets a bridge that connects all. tuning: see tune(), for the interfaces in the others. After a failure all
 * that were created are removed; a namespace that existed before stays. */
int make_namespaces(const char *tuning, int count, char **words);
/* Remove network namespaces, each as soon as no process runs in it. */
int drop_namespaces(int count, char **names);

/* Run a command that is built into the agent (put, get, fill, drain, holdings, network, become, add-line,
 * drop-line, join, part). Return -1 if it is none of them. */
int own_command(int argc, char **argv);
/* Print the resources of the ranks with this mark (NAME=value) in their environment; see holdings.c. */
int print_holdings(const char *mark);
/* Bear the mark of the run with this label, as nearmetal's host/run_mark.py does. */
void bear_mark(const char *label);
/* Add a line to a file and print its former contents; or remove the line, if add is false. */
int change_line(const char *path, const char *line, bool add);
/* Give a guest that was restored from the state of another guest its own host name, time and network. */
int become(const char *name, const char *nanoseconds, const char *mac, const char *net, const char *tune);

#endif
