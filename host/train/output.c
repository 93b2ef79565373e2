/* host/train/output.c: see output.h. */
#include "train/output.h"

#include "base/alloc.h"
#include "base/file.h"
#include "run/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const left_by_a_run[] = {"config.ini",        "starts.jsonl", "metrics.jsonl",   "evaluations.jsonl",
                                            "checkpoints.jsonl", "phases.jsonl", "similarity.json", "ranks.json",
                                            "tensorboard",       "report.html",  "checkpoints",     "model"};
enum { N_LEFT = (int)(sizeof left_by_a_run / sizeof left_by_a_run[0]) };

/* Content of .lock from the time at which a run begins to write other files. */
static const char lock_text[] = "weft run\n";

weft_status weft_output_path(const weft_output *output, char *path, size_t size, const char *name, weft_error *err) {
    const int n = snprintf(path, size, "%s/%s", output->directory, name);
    if (n < 0 || (size_t)n >= size)
        return weft_error_set(err, WEFT_E_USER, "[run] out: the path %s/%s is too long", output->directory, name);
    return WEFT_OK;
}

static bool has_mark(const weft_output *output) {
    char bytes[sizeof lock_text];
    return pread(output->lock, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes - 1 &&
           memcmp(bytes, lock_text, sizeof bytes - 1) == 0;
}

static weft_status refuse_lock(const char *path, weft_error *err) {
    if (errno == ELOOP)
        return weft_error_set(err, WEFT_E_USER, "%s is a symbolic link, which no run made. Fix: remove it", path);
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
}

static weft_status take_lock(weft_output *output, weft_error *err) {
    char path[4096];
    struct stat about;
    weft_status status = weft_output_path(output, path, sizeof path, ".lock", err);
    if (status != WEFT_OK) return status;
    output->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    output->made_lock = output->lock >= 0;
    if (output->lock < 0 && errno == EEXIST) output->lock = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (output->lock < 0) return refuse_lock(path, err);
    if (fstat(output->lock, &about) != 0 || !S_ISREG(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "%s is no regular file, so no run made it. Fix: remove it", path);
    if (flock(output->lock, LOCK_EX | LOCK_NB) != 0)
        return weft_error_set(err, WEFT_E_USER, "%s is in use by another run: wait for it, or choose another [run] out",
                              output->directory);
    if (about.st_size > 0 && !has_mark(output)) /* older runs have an empty lock */
        return weft_error_set(err, WEFT_E_USER,
                              "%s: no run wrote this file, so no run replaces it. Fix: move it away, or choose another "
                              "[run] out",
                              path);
    return weft_output_check(output, err);
}

weft_status weft_output_check(const weft_output *output, weft_error *err) {
    char path[4096];
    struct stat named, held;
    weft_status status = WEFT_OK;
    if (!output->writes) return WEFT_OK;
    status = weft_output_path(output, path, sizeof path, ".lock", err);
    if (status != WEFT_OK) return status;
    if (lstat(path, &named) == 0) {
        if (fstat(output->lock, &held) == 0 && named.st_dev == held.st_dev && named.st_ino == held.st_ino)
            return WEFT_OK;
    } else if (errno != ENOENT && errno != ENOTDIR) {
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
    }
    return weft_error_set(err, WEFT_E_USER,
                          "[run] out = %s: the directory was renamed, removed or replaced while this run wrote to it; "
                          "nothing more is written. Fix: give it that name again and continue with --resume",
                          output->directory);
}

/* Sets *name to an existing file of a run, or to NULL. */
static weft_status find_left(const char **name, const weft_output *output, weft_error *err) {
    *name = NULL;
    for (int i = 0; i < N_LEFT && *name == NULL; i++) {
        char path[4096];
        struct stat info;
        const weft_status status = weft_output_path(output, path, sizeof path, left_by_a_run[i], err);
        if (status != WEFT_OK) return status;
        if (lstat(path, &info) == 0) *name = left_by_a_run[i];
        else if (errno != ENOENT && errno != ENOTDIR)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

/* Detects an earlier run by the content of its lock, or by its record of starts: older runs have an empty lock, and a
 * copied directory may lack it. Files that another program made under these names do not count. */
static weft_status detect_run(weft_output *output, weft_error *err) {
    char path[4096], bytes[64] = "";
    weft_status status = weft_output_path(output, path, sizeof path, "starts.jsonl", err);
    const int file = status == WEFT_OK ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (status != WEFT_OK) return status;
    if (file < 0 && errno != ENOENT && errno != ENOTDIR)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(errno));
    if (file >= 0 && read(file, bytes, sizeof bytes - 1) < 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(errno));
    if (file >= 0) (void)close(file);
    output->had_run = has_mark(output) ||
                      (strncmp(bytes, "{\"step\": ", 9) == 0 && strstr(bytes, ", \"weft\": \"") != NULL);
    return status;
}

static weft_status refuse_foreign(const weft_output *output, const char *found, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "[run] out = %s: it holds %s, and no run was made there, so nothing is removed or replaced. "
                          "Fix: move %s away, or choose another [run] out",
                          output->directory, found, found);
}

static weft_status check_directory(weft_output *output, weft_output_mode mode, weft_error *err) {
    const char *found = NULL;
    bool ran = true;
    weft_status status = find_left(&found, output, err);
    if (status == WEFT_OK && output->lock >= 0) {
        status = detect_run(output, err);
        ran = output->had_run;
    }
    if (status != WEFT_OK) return status;
    if (mode == WEFT_OUTPUT_RESUME && found == NULL)
        return weft_error_set(err, WEFT_E_USER, "%s holds no run to resume: start it without --resume",
                              output->directory);
    if (found == NULL || (ran && mode != WEFT_OUTPUT_NEW)) return WEFT_OK;
    if (!ran && mode == WEFT_OUTPUT_RESUME) { /* checkpoints that were copied without the rest are enough */
        char path[4096];
        status = weft_output_path(output, path, sizeof path, "checkpoints", err);
        if (status == WEFT_OK) status = weft_tree_has(&ran, path, "step-", err);
        if (status != WEFT_OK || ran) return status;
    }
    if (!ran) return refuse_foreign(output, found, err);
    return weft_error_set(err, WEFT_E_USER,
                          "%s already holds a run (%s): --resume goes on with it, --overwrite removes "
                          "it, or choose another [run] out",
                          output->directory, found);
}

/* Removes an unused lock, which would look like that of a run. */
static void drop_lock(const weft_output *output) {
    char path[4096];
    if (output->made_lock && weft_output_path(output, path, sizeof path, ".lock", NULL) == WEFT_OK) (void)unlink(path);
}

/* Takes the directory. A resume is checked before the directory is created, so that a mistyped [run] out leaves no
 * files. */
static weft_status take_directory(weft_output *output, weft_output_mode mode, weft_error *err) {
    weft_status status = mode == WEFT_OUTPUT_RESUME ? check_directory(output, mode, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_tree_make(output->directory, err);
    if (status == WEFT_OK) status = take_lock(output, err);
    if (status == WEFT_OK) status = check_directory(output, mode, err);
    if (status != WEFT_OK) drop_lock(output);
    return status;
}

/* Removes files like "config.ini.4711.tmp". */
static weft_status remove_if_temporary(void *context, const char *name, weft_error *err) {
    const weft_output *output = context;
    char path[4096];
    for (int i = 0; i < N_LEFT; i++) {
        const size_t n = strlen(left_by_a_run[i]);
        const char *at = name + n;
        const bool is_file = strchr(left_by_a_run[i], '.') != NULL;
        if (!is_file || strncmp(name, left_by_a_run[i], n) != 0 || at[0] != '.' || at[1] < '0' || at[1] > '9') continue;
        at += 1 + strspn(at + 1, "0123456789");
        if (strcmp(at, ".tmp") == 0 && weft_output_path(output, path, sizeof path, name, NULL) == WEFT_OK &&
            unlink(path) != 0 && errno != ENOENT)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

weft_status weft_output_open(weft_output **out, const char *directory, weft_output_mode mode, bool writes,
                             weft_error *err) {
    weft_status status = WEFT_OK;
    weft_output *output = weft_alloc(1, sizeof *output);
    output->directory = weft_strdup(directory);
    output->lock = -1;
    output->writes = writes;
    if (writes) status = take_directory(output, mode, err);
    if (status == WEFT_OK) *out = output;
    else weft_output_close(output);
    return status;
}

void weft_output_close(weft_output *output) {
    if (output == NULL) return;
    if (output->lock >= 0) (void)close(output->lock);
    free(output->directory);
    free(output);
}

/* Removes the files of the earlier run. */
static weft_status clear(const weft_output *output, weft_error *err) {
    char foreign[WEFT_PATH_BYTES] = "";
    weft_status status = weft_unknown_files_find(foreign, output->directory, err);
    if (status == WEFT_OK && foreign[0] != '\0')
        status =
            weft_error_set(err, WEFT_E_USER,
                           "[run] out = %s: --overwrite removes what a run wrote, and no run wrote %s. Fix: move it "
                           "away, or choose another [run] out",
                           output->directory, foreign);
    for (int i = 0; i < N_LEFT && status == WEFT_OK; i++) {
        char path[4096];
        status = weft_output_path(output, path, sizeof path, left_by_a_run[i], err);
        if (status == WEFT_OK) status = weft_tree_remove(path, err);
    }
    return status;
}

weft_status weft_output_begin(const weft_output *output, weft_output_mode mode, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!output->writes) return WEFT_OK;
    if (output->had_run) {
        status = weft_tree_visit(output->directory, remove_if_temporary, (void *)(uintptr_t)output, err);
        if (status == WEFT_OK && mode == WEFT_OUTPUT_OVERWRITE) status = clear(output, err);
    }
    if (status != WEFT_OK || has_mark(output)) return status;
    if (pwrite(output->lock, lock_text, sizeof lock_text - 1, 0) == (ssize_t)sizeof lock_text - 1) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s/.lock cannot be written: %s", output->directory, strerror(errno));
}

/* Returns true if `inside` is `path` or below it; both are real paths. */
static bool is_inside(const char *inside, const char *path) {
    const size_t n = strlen(path);
    return strncmp(inside, path, n) == 0 && (inside[n] == '\0' || inside[n] == '/');
}

weft_status weft_output_protect(const weft_output *output, const char *path, weft_error *err) {
    char *input = path != NULL && output->writes ? realpath(path, NULL) : NULL;
    weft_status status = WEFT_OK;
    for (int i = 0; input != NULL && i < N_LEFT && status == WEFT_OK; i++) {
        char name[4096];
        char *own = NULL;
        status = weft_output_path(output, name, sizeof name, left_by_a_run[i], err);
        own = status == WEFT_OK ? realpath(name, NULL) : NULL;
        if (own != NULL && is_inside(input, own))
            status = weft_error_set(err, WEFT_E_USER,
                                    "%s is read by this run and would be removed or written over by it: "
                                    "choose another [run] out, or move it out of %s",
                                    path, output->directory);
        free(own);
    }
    free(input);
    return status;
}

static bool is_same_directory(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

weft_status weft_output_check_place(const char *directory, const char *model, const char *tokenizer, weft_error *err) {
    const char *const read[] = {model, tokenizer};
    if (is_same_directory(directory, "/"))
        return weft_error_set(err, WEFT_E_USER,
                              "[run] out = %s is the root of the file system: give a directory of "
                              "the run's own, such as runs/one",
                              directory);
    for (int i = 0; i < 2; i++)
        if (read[i] != NULL && is_same_directory(directory, read[i]))
            return weft_error_set(err, WEFT_E_USER,
                                  "[run] out = %s is the directory of the %s that this run reads: "
                                  "give a directory of the run's own, such as runs/one",
                                  directory, i == 0 ? "model" : "tokenizer");
    return WEFT_OK;
}
