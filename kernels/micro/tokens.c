/* Tokens by which nearmetal controls the ranks: each rank reads them from its own FIFO. */
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

Tokens tokens_open(const char *directory, int rank) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/token.%d", directory, rank) >= (int)sizeof path)
        fail("--tokens: path too long");
    Tokens tokens = {.descriptor = open(path, O_RDONLY | O_CLOEXEC)};
    if (tokens.descriptor < 0)
        fail("%s cannot be opened: %s", path, strerror(errno));
    return tokens;
}

/* One character, or -1 at the end. */
static int next_character(Tokens *tokens) {
    while (tokens->next == tokens->used) {
        ssize_t count = read(tokens->descriptor, tokens->buffer, sizeof tokens->buffer);
        if (count == 0)
            return -1;
        if (count < 0 && errno != EINTR)
            fail("tokens cannot be read: %s", strerror(errno));
        tokens->next = 0;
        tokens->used = count > 0 ? (unsigned)count : 0;
    }
    return (unsigned char)tokens->buffer[tokens->next++];
}

Token tokens_next(Tokens *tokens, int kernels) {
    char line[48];
    unsigned length = 0;
    for (;;) {
        int c = next_character(tokens);
        if (c < 0)
            return (Token){.what = 'q'};
        if (c == '\n')
            break;
        if (length == sizeof line - 1)
            fail("a token longer than %zu characters", sizeof line - 1);
        line[length++] = (char)c;
    }
    line[length] = 0;
    if (strcmp(line, "q") == 0)
        return (Token){.what = 'q'};
    Token token = {.units = 0};
    char rest;
    bool counted = sscanf(line, "s %d %ld%c", &token.kernel, &token.units, &rest) == 2;
    if (!counted &&
        (sscanf(line, "%c %d%c", &token.what, &token.kernel, &rest) != 2 || !strchr("sv", line[0])))
        fail("unknown token '%s'", line);
    token.what = line[0];
    if (counted && (token.units < 1 || token.units > MOST_UNITS))
        fail("token '%s': a slice has 1 to %ld units", line, MOST_UNITS);
    if (token.kernel < 0 || token.kernel >= kernels)
        fail("token '%s': there are %d kernels", line, kernels);
    return token;
}
