/* Prints which processes, connections and memory mappings the ranks of one launch have, since the host cannot
 * see the processes of the guest. For each rank: "RANK process PID"; "RANK link LOCAL REMOTE" for each TCP
 * connection, in the form of /proc/net/tcp; and "maps LINE" for each line of /proc/PID/maps. */
#define _GNU_SOURCE
#include "guest.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=", "SLURM_PROCID="};

/* Return the rank of a process with this mark in its environment; -1 for any other process. */
static long rank_of(const char *pid, const char *mark) {
    static char environment[1 << 18];
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t size = 0;
    for (ssize_t got; (got = read(fd, environment + size, sizeof environment - 1 - size)) > 0;)
        size += (size_t)got;
    close(fd);
    environment[size] = '\0';
    bool marked = false;
    long rank = -1;
    for (size_t at = 0; at < size; at += strlen(environment + at) + 1) {
        marked = marked || strcmp(environment + at, mark) == 0;
        for (size_t n = 0; rank < 0 && n < sizeof rank_names / sizeof *rank_names; n++)
            if (strncmp(environment + at, rank_names[n], strlen(rank_names[n])) == 0)
                rank = atol(environment + at + strlen(rank_names[n]));
    }
    return marked ? rank : -1;
}

/* Print the addresses of the established connection with this socket inode, if the table contains it. */
static void print_link(long rank, const char *table, unsigned long wanted) {
    char line[512], local[80], remote[80];
    unsigned state;
    unsigned long inode;
    FILE *file = fopen(table, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, " %*[^:]: %79s %79s %x %*s %*s %*s %*s %*s %lu", local, remote, &state, &inode) ==
                4 &&
            state == 1 && inode == wanted)
            printf("%ld link %s %s\n", rank, local, remote);
    if (file != NULL)
        fclose(file);
}

static void print_links(long rank, const char *pid) {
    char path[64], file[400], target[64], tables[2][64];
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    /* Of its own network: a container in the guest may have one. */
    snprintf(tables[0], sizeof tables[0], "/proc/%.16s/net/tcp", pid);
    snprintf(tables[1], sizeof tables[1], "/proc/%.16s/net/tcp6", pid);
    DIR *held = opendir(path);
    for (struct dirent *entry; held != NULL && (entry = readdir(held)) != NULL;) {
        unsigned long inode;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        ssize_t size = readlink(file, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        if (sscanf(target, "socket:[%lu]", &inode) == 1) {
            print_link(rank, tables[0], inode);
            print_link(rank, tables[1], inode);
        }
    }
    if (held != NULL)
        closedir(held);
}

static void print_maps(const char *pid) {
    char path[64];
    static char line[4096];
    snprintf(path, sizeof path, "/proc/%.16s/maps", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        printf("maps %s", line);
    if (file != NULL)
        fclose(file);
}

int print_holdings(const char *mark) {
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
        long rank = isdigit((unsigned char)entry->d_name[0]) ? rank_of(entry->d_name, mark) : -1;
        if (rank < 0)
            continue;
        printf("%ld process %s\n", rank, entry->d_name);
        print_links(rank, entry->d_name);
        print_maps(entry->d_name);
    }
    return processes == NULL || closedir(processes) != 0;
}
