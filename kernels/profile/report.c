/* Writes the profile of a rank as one JSON object. An error is only reported on standard error, so that the
   profile never makes the program fail. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile.h"
#include "text.h"

#define CALL(Name, ...) "MPI_" #Name,
#define COUNTED CALL
#define MAKES CALL
#define C_ONLY CALL
static const char *const names[CALLS] = {
#include "calls.def"
};

static void add_seconds(Text *text, const char *name, uint64_t span, double rate) {
    text_add(text, "\"%s\":", name);
    json_number(text, (double)span * rate);
}

static void add_calls(Text *text, const Section *section, double rate) {
    const char *comma = "";
    text_add(text, "\"calls\":{");
    for (int c = 0; c < CALLS; c++) {
        const Call *call = &section->call[c];
        if (!call->count)
            continue;
        text_add(text, "%s\"%s\":{\"count\":%llu,", comma, names[c], (unsigned long long)call->count);
        add_seconds(text, "seconds", call->ticks, rate);
        text_add(text, ",\"bytes\":%llu}", (unsigned long long)call->bytes);
        comma = ",";
    }
    text_add(text, "}");
}

static void add_peers(Text *text, const Section *section) {
    const char *comma = "";
    text_add(text, "\"peers\":[");
    for (int p = 0; p <= profile.ranks; p++) {
        const Peer *peer = &section->peer[p];
        if (!peer->messages)
            continue;
        text_add(text, "%s{\"rank\":%d,\"messages\":%llu,\"bytes\":%llu}", comma, p < profile.ranks ? p : -1,
                 (unsigned long long)peer->messages, (unsigned long long)peer->bytes);
        comma = ",";
    }
    text_add(text, "]");
}

static void add_section(Text *text, int s, double rate) {
    const Section *section = &profile.section[s];
    text_add(text, "{\"level\":%d,", s ? s - 1 + FIRST_LEVEL : NO_SECTION);
    add_seconds(text, "compute", section->ticks - section->communication, rate);
    text_add(text, ",");
    add_seconds(text, "communication", section->communication, rate);
    text_add(text, ",");
    add_calls(text, section, rate);
    text_add(text, ",");
    add_peers(text, section);
    text_add(text, "}");
}

/* Return the seconds from the start by nm-rank (NEARMETAL_STARTED) to the loading of this library; 0 if
   nm-rank has not set the variable. */
static double seconds_before_loading(void) {
    const char *noted = getenv("NEARMETAL_STARTED");
    const uint64_t started = noted ? strtoull(noted, NULL, 10) : 0;
    return started && started < profile.loaded_nanoseconds
               ? 1e-9 * (double)(profile.loaded_nanoseconds - started)
               : 0;
}

static void add_all(Text *text, bool complete) {
    const double rate =
        1e-9 * (double)(nanoseconds() - profile.loaded_nanoseconds) / (double)(ticks() - profile.loaded);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    PMPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    text_add(text, "{\"rank\":%d,\"ranks\":%d,\"complete\":%s,\"clock\":\"%s\",\"mpi\":", profile.rank,
             profile.ranks, complete ? "true" : "false", ticks_of_processor ? "tsc" : "monotonic_raw");
    json_string(text, version);
    text_add(text, ",\"before\":");
    json_number(text, seconds_before_loading() + (double)(profile.init - profile.loaded) * rate);
    text_add(text, ",");
    add_seconds(text, "init", profile.running - profile.init, rate);
    text_add(text, ",");
    add_seconds(text, "finalize", profile.ended - profile.finalize, rate);
    text_add(text, ",\"sections\":[");
    for (int s = 0; s < SECTIONS; s++)
        if (profile.section[s].peer) {
            text_add(text, s ? "," : "");
            add_section(text, s, rate);
        }
    text_add(text, "]}\n");
}

/* Write the file under a temporary name and rename it, so that a reader never finds an incomplete file. */
static bool write_whole(const Text *text, const char *directory) {
    char path[PATH_MAX], aside[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/profile.%d.json", directory, profile.rank);
    const int other =
        snprintf(aside, sizeof aside, "%s/.profile.%d.%ld", directory, profile.rank, (long)getpid());
    if (length >= (int)sizeof path || other >= (int)sizeof aside) {
        errno = ENAMETOOLONG;
        return false;
    }
    const int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    const bool written = text_write(text, file);
    return close(file) == 0 && written && rename(aside, path) == 0;
}

void profile_report(bool complete) {
    const char *directory = getenv("NEARMETAL_PROFILE");
    if (!directory || !*directory)
        return;
    Text text = {0};
    add_all(&text, complete);
    if (!write_whole(&text, directory))
        fprintf(stderr, "the profile of rank %d cannot be written to %s: %s\n", profile.rank, directory,
                strerror(errno));
    text_free(&text);
}
