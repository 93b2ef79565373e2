/* host/conform/whole_rules.c: rules of every kind: it is loaded, and runs with it are what runs have to be. Those are
 * this program's own commands, on a small model. */
#include "conform/rule.h"

#include "base/join.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_status is_loaded(weft_subject *subject, weft_error *err) {
    (void)subject;
    (void)err;
    return WEFT_OK; /* whoever got here has loaded it and filled its keys */
}

/* ---- commands ---- */

enum { MOST_WORDS = 40, MOST_SAID = 1200 };

/* The last words of a command's output. */
static void read_end(char *out, size_t size, const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n = 0;
    out[0] = '\0';
    if (file == NULL) return;
    if (fseek(file, -(long)size + 1, SEEK_END) != 0) rewind(file);
    n = fread(out, 1, size - 1, file);
    out[n] = '\0';
    while (n > 0 && out[n - 1] == '\n') out[--n] = '\0';
    (void)fclose(file);
}

static void become(const char *const *words) {
    const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log >= 0) {
        (void)dup2(log, STDOUT_FILENO);
        (void)dup2(log, STDERR_FILENO);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)words);
    _exit(127);
}

/* Runs weft with these words, and those that choose the plugin and its keys. */
static weft_status run(const weft_subject *subject, const char *const *words, weft_error *err) {
    const weft_subject_options *options = subject->options;
    char chosen[WEFT_PATH_BYTES + 32]; /* "optimizer.plugin=FILE" */
    const char *all[MOST_WORDS] = {"weft"};
    char said[MOST_SAID];
    int n = 1, status = 0;
    pid_t child;
    while (*words != NULL && n < MOST_WORDS - 3) all[n++] = *words++;
    (void)snprintf(chosen, sizeof chosen, "%s.plugin=%s", subject->loaded->plugin->kind, options->file);
    all[n++] = chosen;
    for (size_t i = 0; i < options->n_overrides && n < MOST_WORDS - 1; i++) all[n++] = options->overrides[i];
    child = fork();
    if (child == 0) become(all);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return weft_error_set(err, WEFT_E_SYSTEM, "weft cannot be started");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return WEFT_OK;
    read_end(said, sizeof said, "log");
    return WEFT_BROKEN(err, "weft %s %s ends with status %d: %s", all[1], all[2],
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said);
}

/* run.ini of the small model, in its own directory. */
static weft_status find_ini(char out[WEFT_PATH_BYTES], const weft_subject *subject, weft_error *err) {
    return weft_path_join(out, subject->options->directory, "run.ini", err);
}

static bool same_files(const char *a, const char *b) {
    FILE *one = fopen(a, "rb"), *two = fopen(b, "rb");
    int c = 0, d = 0;
    while (one != NULL && two != NULL && c == d && c != EOF) {
        c = fgetc(one);
        d = fgetc(two);
    }
    if (one != NULL) (void)fclose(one);
    if (two != NULL) (void)fclose(two);
    return c == EOF && d == EOF;
}

static weft_status resumes(weft_subject *subject, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    weft_status status = find_ini(ini, subject, err);
    const char *const whole[] = {"train", ini, "run.out=whole", "train.steps=4", "checkpoint.every=2", NULL};
    const char *const half[] = {"train", ini, "run.out=halves", "train.steps=2", "checkpoint.every=2", NULL};
    const char *const rest[] = {"train",    ini, "run.out=halves", "train.steps=4", "checkpoint.every=2",
                                "--resume", NULL};
    if (status == WEFT_OK) status = run(subject, whole, err);
    if (status == WEFT_OK) status = run(subject, half, err);
    if (status == WEFT_OK) status = run(subject, rest, err);
    if (status == WEFT_OK && !same_files("whole/model/model.safetensors", "halves/model/model.safetensors"))
        status = WEFT_BROKEN(err, "four steps give another model than two, a stop and two more");
    return status;
}

static weft_status proved(weft_subject *subject, weft_error *err) {
    const bool is_comm = strcmp(subject->loaded->plugin->kind, "comm") == 0; /* it knows what it can start */
    char ini[WEFT_PATH_BYTES];
    const weft_status status = find_ini(ini, subject, err);
    const char *const words[] = {"prove", ini, "run.out=proof", "--steps", "2", is_comm ? NULL : "--ranks", "2", NULL};
    return status == WEFT_OK ? run(subject, words, err) : status;
}

const weft_rule weft_rules_all[] = {{"R26", NULL, "is loaded, and its keys hold", is_loaded},
                                    {"R27", NULL, "trains, stops and resumes to the same bits", resumes},
                                    {"R28", NULL, "is proved under every strategy", proved},
                                    {NULL, NULL, NULL, NULL}};
