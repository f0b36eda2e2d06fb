/* nm-box cpuid: prints the names of the hypervisors below this machine as JSON, from CPUID leaves 0x40000000,
 * 0x40000100 and so on, which every program can read. In a paravirtualised guest of Xen, CPUID reaches the
 * processor itself, and so shows the hypervisor below Xen, if any. */
#define _GNU_SOURCE
#include "box.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

enum { FIRST = 0x40000000, LAST = 0x40000400, STEP = 0x100, SIZE = 12 };

/* Return whether the text is a name. Without a hypervisor, the processor returns some other leaf. */
static bool is_name(const char *text) {
    size_t length = strnlen(text, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        if (i < length ? text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\'
                       : text[i] != '\0')
            return false;
    return length >= SIZE / 2;
}

int cpuid_main(int argc, char **argv) {
    (void)argc, (void)argv;
    const char *between = "";
    printf("{\"hypervisors\": [");
    for (unsigned leaf = FIRST; leaf < LAST; leaf += STEP) {
        char name[SIZE + 1] = "";
#ifdef __x86_64__
        unsigned most, words[3];
        __cpuid(leaf, most, words[0], words[1], words[2]);
        memcpy(name, words, SIZE);
#endif
        if (!is_name(name))
            break;
        printf("%s\"%s\"", between, name);
        between = ", ";
    }
    printf("]}\n");
    return 0;
}
