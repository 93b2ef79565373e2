/* host/conform/whole_rules.c: rules of every kind: it is loaded, and runs with it are what runs have to be. Those are
 * this program's own commands, on a small model in a directory that goes away. */
#include "conform/rule.h"

#include "base/join.h"
#include "base/tree.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_status is_loaded(weft_subject *subject, weft_error *err) {
    (void)subject;
    (void)err;
    return WEFT_OK; /* whoever got here has loaded it and filled its keys */
}

/* ---- commands ---- */

enum { MOST_WORDS = 40, MOST_SAID = 1200 };

typedef struct scene {
    char directory[64], chosen[WEFT_PATH_BYTES + 32]; /* chosen: "optimizer.plugin=FILE" */
    const weft_subject *subject;
} scene;

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
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)words);
    _exit(127);
}

/* Runs weft with these words, and those that choose the plugin and its keys. */
static weft_status run(const scene *s, const char *const *words, weft_error *err) {
    const weft_subject_options *options = s->subject->options;
    const char *all[MOST_WORDS] = {"weft"};
    char said[MOST_SAID];
    int n = 1, status = 0;
    pid_t child;
    while (*words != NULL && n < MOST_WORDS - 3) all[n++] = *words++;
    all[n++] = s->chosen;
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

static weft_status scene_open(scene *s, const weft_subject *subject, weft_error *err) {
    memset(s, 0, sizeof *s);
    s->subject = subject;
    (void)snprintf(s->directory, sizeof s->directory, "/tmp/weft-check-XXXXXX");
    (void)snprintf(s->chosen, sizeof s->chosen, "%s.plugin=%s", subject->loaded->plugin->kind, subject->options->file);
    if (mkdtemp(s->directory) == NULL || chdir(s->directory) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "no temporary directory");
    return WEFT_OK;
}

/* run.ini of the small model, in its own directory. */
static weft_status find_ini(char out[WEFT_PATH_BYTES], const weft_subject *subject, weft_error *err) {
    return weft_path_join(out, subject->options->directory, "run.ini", err);
}

static void scene_close(const scene *s) {
    weft_error ignored = WEFT_ERROR_INIT;
    (void)chdir("/");
    (void)weft_tree_remove(s->directory, &ignored);
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
    char ini[WEFT_PATH_BYTES], whole[96], halves[96];
    scene s;
    weft_status status = scene_open(&s, subject, err);
    (void)snprintf(whole, sizeof whole, "run.out=%s/whole", s.directory);
    (void)snprintf(halves, sizeof halves, "run.out=%s/halves", s.directory);
    if (status == WEFT_OK) status = find_ini(ini, subject, err);
    if (status == WEFT_OK)
        status = run(&s, (const char *const[]){"train", ini, whole, "train.steps=4", "checkpoint.every=2", NULL}, err);
    if (status == WEFT_OK)
        status = run(&s, (const char *const[]){"train", ini, halves, "train.steps=2", "checkpoint.every=2", NULL}, err);
    if (status == WEFT_OK)
        status =
            run(&s,
                (const char *const[]){"train", ini, halves, "train.steps=4", "checkpoint.every=2", "--resume", NULL},
                err);
    if (status == WEFT_OK && !same_files("whole/model/model.safetensors", "halves/model/model.safetensors"))
        status = WEFT_BROKEN(err, "four steps give another model than two, a stop and two more");
    scene_close(&s);
    return status;
}

static weft_status proved(weft_subject *subject, weft_error *err) {
    const bool is_comm = strcmp(subject->loaded->plugin->kind, "comm") == 0; /* it knows what it can start */
    char ini[WEFT_PATH_BYTES], out[96];
    scene s;
    weft_status status = scene_open(&s, subject, err);
    (void)snprintf(out, sizeof out, "run.out=%s/proof", s.directory);
    if (status == WEFT_OK) status = find_ini(ini, subject, err);
    if (status == WEFT_OK)
        status = run(&s,
                     (const char *const[]){"prove", ini, out, "--steps", "2", is_comm ? NULL : "--ranks", "2", NULL},
                     err);
    scene_close(&s);
    return status;
}

const weft_rule weft_rules_all[] = {{"R26", NULL, "is loaded, and its keys hold", is_loaded},
                                    {"R27", NULL, "trains, stops and resumes to the same bits", resumes},
                                    {"R28", NULL, "is proved under every strategy", proved},
                                    {NULL, NULL, NULL, NULL}};
