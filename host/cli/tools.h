/* host/cli/tools.h: commands that are separate programs. `weft ab` runs libexec/weft/weft-ab with the same arguments.
 * Any other executable weft-NAME, in that directory or in a directory of PATH, is the command `weft NAME`. It receives
 * the arguments after NAME, and WEFT_PROGRAM contains the path of `weft` for calls back. */
#ifndef WEFT_HOST_CLI_TOOLS_H
#define WEFT_HOST_CLI_TOOLS_H

#include <stdbool.h>
#include <stdio.h>

typedef struct weft_tool {
    const char *name;    /* of the command: "ab", "plugins check" */
    const char *program; /* "weft-ab" */
    const char *summary; /* one line */
} weft_tool;

/* Returns the i-th built-in tool; NULL past the end. */
const weft_tool *weft_tool_at(size_t i);

/* Replaces this process by the tool's program. Returns only if that fails, after an error on stderr. */
void weft_tool_run(const weft_tool *self, char **argv);

/* Replaces this process by the program weft-NAME of libexec/weft or PATH, where argv[1] is NAME. Returns false if
 * there is no such program; true if it cannot be run, after an error on stderr. */
bool weft_tool_run_foreign(char **argv);

/* Prints the names of the programs weft-NAME that are not built in, one a line, with their paths. */
void weft_tool_print_foreign(FILE *file);

#endif
