/* nm-box: starts instances in namespaces and cgroups, and runs commands in them. Commands are lists of
 * arguments, never shell command lines, except those of mpirun (agent.c). Started by the name "agent" it is
 * nm-box agent, since mpirun accepts only the name of a program without arguments. Started by a link beside a
 * script, it runs the script (script.c). */
#include "box.h"
#include "fail.h"

#include <string.h>

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int, char **);
    } commands[] = {{"start", start_main},     {"enter", enter_main},         {"agent", agent_main},
                    {"by-rank", by_rank_main}, {"hold", hold_main},           {"wrap", wrap_main},
                    {"relay", relay_main},     {"call", call_main},           {"cma", cma_main},
                    {"guest", guest_main},     {"multiplex", multiplex_main}, {"tap", tap_main},
                    {"kvm", kvm_main},         {"cpuid", cpuid_main},         {"trip", trip_main},
                    {"reap", reap_main},       {"silent", silent_main},       {"seat", seat_main}};
    fail_program("nm-box"); /* also if it was started as "agent" */
    const char *called = strrchr(argv[0], '/');
    if (called != NULL && strcmp(called, "/agent") == 0)
        return agent_main(argc, argv);
    run_script_of_link(argc, argv);
    const char *wanted = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(wanted, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    refuse("usage: nm-box "
           "start|enter|agent|by-rank|hold|wrap|relay|call|cma|guest|multiplex|tap|kvm|cpuid|trip|reap|"
           "silent|seat ...",
           wanted);
}
