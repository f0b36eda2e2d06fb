/* Parses the argument KERNEL-SPEC: name:key=value:key=value. */
#include "spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

static void copy_word(char *to, const char *from, size_t length, const char *text) {
    if (length == 0 || length >= SPEC_WORD)
        fail("kernel '%s': every word takes 1 to %d characters", text, SPEC_WORD - 1);
    memcpy(to, from, length);
    to[length] = 0;
}

Spec spec_parse(const char *text) {
    Spec spec = {0};
    const char *at = text + strcspn(text, ":");
    copy_word(spec.name, text, (size_t)(at - text), text);
    while (*at == ':') {
        at++;
        size_t length = strcspn(at, ":"), key = strcspn(at, "=:");
        if (at[key] != '=')
            fail("kernel '%s': key=value was expected at '%s'", text, at);
        if (spec.count == SPEC_PAIRS)
            fail("kernel '%s': more than %d keys", text, SPEC_PAIRS);
        SpecPair *pair = &spec.pair[spec.count++];
        copy_word(pair->key, at, key, text);
        copy_word(pair->value, at + key + 1, length - key - 1, text);
        at += length;
    }
    return spec;
}

/* Return the value of a key; the last one if it is given several times. */
static const char *find(Spec *spec, const char *key) {
    const char *value = NULL;
    for (int n = 0; n < spec->count; n++)
        if (strcmp(spec->pair[n].key, key) == 0) {
            spec->pair[n].used = true;
            value = spec->pair[n].value;
        }
    return value;
}

long spec_integer(Spec *spec, const char *key, long fallback, long least, long most) {
    const char *value = find(spec, key);
    if (!value)
        return fallback;
    char *end;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (end == value || *end || errno || number < least || number > most)
        fail("%s: %s=%s is not a whole number from %ld to %ld", spec->name, key, value, least, most);
    return number;
}

double spec_real(Spec *spec, const char *key, double fallback, double least, double most) {
    const char *value = find(spec, key);
    if (!value)
        return fallback;
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number) || number < least || number > most)
        fail("%s: %s=%s is not a number from %g to %g", spec->name, key, value, least, most);
    return number;
}

size_t spec_choice(Spec *spec, const char *key, const char *const *words, size_t count, size_t fallback) {
    const char *value = find(spec, key);
    if (!value)
        return fallback;
    for (size_t n = 0; n < count; n++)
        if (strcmp(words[n], value) == 0)
            return n;
    fail("%s: %s=%s is not known (first of %zu: %s)", spec->name, key, value, count, words[0]);
}

Common spec_common(Spec *spec) {
    static const char *const pages[] = {"huge", "4k"};
    return (Common){
        .pages = spec_choice(spec, "pages", pages, 2, 0) == 0 ? PAGES_HUGE : PAGES_SMALL,
        .extra = spec_real(spec, "extra", 0, 0, 10),
        .corrupt = spec_integer(spec, "corrupt", 0, 0, 1) == 1,
        .threads = (int)spec_integer(spec, "threads", 1, 1, 1024),
    };
}

Common spec_single(Spec *spec) {
    Common common = spec_common(spec);
    if (common.threads > 1)
        fail("%s computes on one thread per rank, not on %d", spec->name, common.threads);
    return common;
}

void spec_end(const Spec *spec) {
    for (int n = 0; n < spec->count; n++)
        if (!spec->pair[n].used)
            fail("%s: unknown key '%s'", spec->name, spec->pair[n].key);
}
