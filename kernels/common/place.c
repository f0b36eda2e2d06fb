/* Where a rank really runs: host name, CPU, affinity, namespaces. */
#include "place.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

enum { MOST_CPUS = 1 << 16 };

static void add_affinity(Text *text) {
    size_t size = CPU_ALLOC_SIZE(MOST_CPUS);
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    if (!set || sched_getaffinity(0, size, set))
        fail("affinity cannot be read: %s", strerror(errno));
    const char *comma = "";
    for (int cpu = 0, left = CPU_COUNT_S(size, set); left > 0; cpu++)
        if (CPU_ISSET_S(cpu, size, set)) {
            text_add(text, "%s%d", comma, cpu);
            comma = ",";
            left--;
        }
    CPU_FREE(set);
}

static void add_namespaces(Text *text) {
    static const char *const kinds[] = {"mnt", "net", "pid", "ipc", "uts", "user"};
    const char *comma = "";
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[64], link[64];
        unsigned long inode;
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[k]);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length <= 0)
            continue;
        link[length] = 0;
        const char *bracket = strchr(link, '[');
        if (bracket && sscanf(bracket, "[%lu]", &inode) == 1) {
            text_add(text, "%s\"%s\":%lu", comma, kinds[k], inode);
            comma = ",";
        }
    }
}

void place_json(Text *text, int rank) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1))
        fail("host name cannot be read: %s", strerror(errno));
    text_add(text, "{\"rank\":%d,\"host\":", rank);
    json_string(text, host);
    text_add(text, ",\"cpu\":%d,\"affinity\":[", sched_getcpu());
    add_affinity(text);
    text_add(text, "],\"namespaces\":{");
    add_namespaces(text);
    text_add(text, "}}");
}
