/* Runs a shell script on behalf of a link to nm-box. In some directories, such as /run on Debian, no file can
 * be executed. A link there can, if it leads to a program in another directory. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Run the script beside the link by which this program was started; return if it was started by its own name,
 * or if there is no script. The name of the script is that of the link with ".sh" appended. */
void run_script_of_link(int argc, char **argv) {
    const char *link = (const char *)getauxval(AT_EXECFN); /* argv[0] may be without a directory */
    char script[PATH_MAX];
    const char *name = link == NULL ? NULL : strrchr(link, '/');
    if (name == NULL || strcmp(name, "/nm-box") == 0 ||
        snprintf(script, sizeof script, "%s.sh", link) >= (int)sizeof script || access(script, R_OK) != 0)
        return;
    char *words[argc + 2];
    words[0] = (char[]){"sh"};
    words[1] = script;
    for (int i = 1; i <= argc; i++)
        words[i + 1] = argv[i];
    execv("/bin/sh", words);
    die("execv", "/bin/sh");
}
