/* host/cli/tools.c: see tools.h. */
#include "cli/tools.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/installed.h"

static const weft_tool tools[] = {
    {"ab", "weft-ab", "Compare settings of a run: which is better, and by how much."},
    {"init", "weft-init", "Write a configuration for a model and a data file."},
    {"plugins check", "weft-check", "Check a plugin against the rules of its kind."},
    {"plugins exchange", "weft-check", "Check every exchange of a communicator."},
    {"profile", "weft-profile", "Measure the time of a training step by operator."},
    {"prove", "weft-prove", "Prove that all strategies give the same bits."},
    {"report", "weft-report", "Summarize and compare runs."},
};

const weft_tool *weft_tool_at(size_t i) {
    return i < sizeof tools / sizeof *tools ? &tools[i] : NULL;
}

/* Finds the directory of the tools: below the program's in a build tree, else next to bin. */
static bool find_directory(char out[WEFT_PATH_BYTES]) {
    return weft_async_checkpoint_program(out, "libexec/weft") || weft_async_checkpoint_program(out, "../libexec/weft");
}

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

void weft_tool_run(const weft_tool *self, char **argv) {
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES];
    weft_error err = WEFT_ERROR_INIT;
    if (!find_directory(directory)) {
        (void)fprintf(stderr,
                      "weft %s: the program %s is missing: there is no libexec/weft next to this program. "
                      "Fix: install Weft as a whole.\n",
                      self->name, self->program);
        return;
    }
    if (weft_path_join(path, directory, self->program, &err) == WEFT_OK) (void)execv(path, argv);
    (void)fprintf(stderr, "weft %s: %s/%s cannot be run: %s. Fix: install Weft as a whole.\n", self->name, directory,
                  self->program, strerror(errno));
}

/* Calls visit for every directory that may contain weft-NAME, first libexec/weft, then those of PATH, until it returns
 * true. */
static bool each_directory(bool (*visit)(void *context, const char *directory), void *context) {
    char directory[WEFT_PATH_BYTES];
    const char *at = getenv("PATH");
    if (find_directory(directory) && visit(context, directory)) return true;
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");
        /* An empty entry or a relative one would make the working directory a source of programs. */
        if (at[0] == '/' && n < sizeof directory) {
            (void)snprintf(directory, sizeof directory, "%.*s", (int)n, at);
            if (visit(context, directory)) return true;
        }
        at += n + (at[n] == ':');
    }
    return false;
}

typedef struct wanted {
    const char *name;
    char path[WEFT_PATH_BYTES];
} wanted;

static bool find_program(void *context, const char *directory) {
    wanted *self = context;
    const int n = snprintf(self->path, sizeof self->path, "%s/weft-%s", directory, self->name);
    return n > 0 && (size_t)n < sizeof self->path && is_program(self->path);
}

bool weft_tool_run_foreign(char **argv) {
    wanted self = {argv[1], ""};
    char program[WEFT_PATH_BYTES];
    /* "weft-" without a name is invalid, and a name with a slash would leave the directory. */
    if (!isalnum((unsigned char)argv[1][0]) || strchr(argv[1], '/') != NULL) return false;
    if (!each_directory(find_program, &self)) return false;
    if (weft_async_checkpoint_program(program, "weft")) (void)setenv("WEFT_PROGRAM", program, 1);
    (void)execv(self.path, argv + 1);
    (void)fprintf(stderr, "weft %s: %s cannot be run: %s\n", argv[1], self.path, strerror(errno));
    return true;
}

static bool is_built_in(const char *program) {
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strcmp(tools[i].program, program) == 0) return true;
    return false;
}

static bool print_directory(void *context, const char *directory) {
    DIR *entries = opendir(directory);
    const struct dirent *entry = NULL;
    char path[WEFT_PATH_BYTES + 256];
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, "weft-", 5) != 0 || entry->d_name[5] == '\0' || is_built_in(entry->d_name)) continue;
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (is_program(path)) (void)fprintf(context, "  %-18s%s\n", entry->d_name + 5, path);
    }
    if (entries != NULL) (void)closedir(entries);
    return false;
}

void weft_tool_print_foreign(FILE *file) {
    (void)each_directory(print_directory, file);
}
