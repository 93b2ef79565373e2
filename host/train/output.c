/* host/train/output.c: see trainer.h. */
#include "train/trainer.h"

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
enum { N_LEFT = (int)(sizeof left_by_a_run / sizeof left_by_a_run[0]), MOST_DIRECTORY = WEFT_PATH_BYTES - 512 };

/* Content of .lock from the time at which a run begins to write other files. */
static const char lock_text[] = "weft run\n";

const char *weft_output_path(const weft_output *output, char path[WEFT_PATH_BYTES], const char *name) {
    (void)snprintf(path, WEFT_PATH_BYTES, "%s/%s", output->directory, name);
    return path;
}

static bool has_mark(const weft_output *output) {
    char bytes[sizeof lock_text];
    return pread(output->lock, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes - 1 &&
           memcmp(bytes, lock_text, sizeof bytes - 1) == 0;
}

static weft_status take_lock(weft_output *output, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    struct stat about;
    output->lock = open(weft_output_path(output, path, ".lock"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    output->made_lock = output->lock >= 0;
    if (output->lock < 0 && errno == EEXIST) output->lock = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (output->lock < 0 && errno == ELOOP)
        return weft_error_set(err, WEFT_E_USER, "%s is a symbolic link, which no run made. Fix: remove it", path);
    if (output->lock < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    if (fstat(output->lock, &about) != 0 || !S_ISREG(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "%s is no regular file, so no run made it. Fix: remove it", path);
    if (flock(output->lock, LOCK_EX | LOCK_NB) != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "[run] out = %s is in use by another run. Fix: wait for it, or choose another [run] out",
                              output->directory);
    if (about.st_size > 0 && !has_mark(output)) /* older runs have an empty lock */
        return weft_error_set(err, WEFT_E_USER, "%s: no run wrote this file. Fix: move it, or choose another [run] out",
                              path);
    return weft_output_check(output, err);
}

weft_status weft_output_check(const weft_output *output, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    struct stat named, held;
    if (!output->writes) return WEFT_OK;
    if (lstat(weft_output_path(output, path, ".lock"), &named) == 0) {
        if (fstat(output->lock, &held) == 0 && named.st_dev == held.st_dev && named.st_ino == held.st_ino)
            return WEFT_OK;
    } else if (errno != ENOENT && errno != ENOTDIR) {
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
    }
    return weft_error_set(err, WEFT_E_USER,
                          "[run] out = %s: the directory was renamed, removed or replaced while this run wrote to it; "
                          "the run stops writing. Fix: restore its name and continue with --resume",
                          output->directory);
}

/* Sets *name to an existing file of a run, or to NULL. */
static weft_status find_left(const char **name, const weft_output *output, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    struct stat info;
    *name = NULL;
    for (int i = 0; i < N_LEFT && *name == NULL; i++) {
        if (lstat(weft_output_path(output, path, left_by_a_run[i]), &info) == 0) *name = left_by_a_run[i];
        else if (errno != ENOENT && errno != ENOTDIR)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

/* Detects an earlier run by the content of its lock, or by its record of starts: older runs have an empty lock, and a
 * copied directory may lack it. Files that another program made under these names do not count. */
static weft_status detect_run(weft_output *output, weft_error *err) {
    char path[WEFT_PATH_BYTES], bytes[64] = "";
    const int file = open(weft_output_path(output, path, "starts.jsonl"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool failed = file < 0 ? errno != ENOENT && errno != ENOTDIR : read(file, bytes, sizeof bytes - 1) < 0;
    const int error = errno;
    if (file >= 0) (void)close(file);
    if (failed) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(error));
    output->had_run = has_mark(output) ||
                      (strncmp(bytes, "{\"step\": ", 9) == 0 && strstr(bytes, ", \"weft\": \"") != NULL);
    return WEFT_OK;
}

static weft_status check_directory(weft_output *output, weft_error *err) {
    const char *found = NULL;
    char path[WEFT_PATH_BYTES];
    bool ran = true;
    weft_status status = find_left(&found, output, err);
    if (status == WEFT_OK && output->lock >= 0) {
        status = detect_run(output, err);
        ran = output->had_run;
    }
    if (status != WEFT_OK) return status;
    if (output->mode == WEFT_OUTPUT_RESUME && found == NULL)
        return weft_error_set(err, WEFT_E_USER, "[run] out = %s contains no run to resume. Fix: start without --resume",
                              output->directory);
    if (!ran && output->mode == WEFT_OUTPUT_RESUME) { /* checkpoints that were copied without the rest are enough */
        status = weft_tree_has(&ran, weft_output_path(output, path, "checkpoints"), "step-", err);
        if (status != WEFT_OK) return status;
    }
    if (found == NULL || (ran && output->mode != WEFT_OUTPUT_NEW)) return WEFT_OK;
    if (!ran)
        return weft_error_set(
            err, WEFT_E_USER,
            "[run] out = %s: it contains %s, and no run was made there, so the run removes and replaces "
            "no file. Fix: move %s, or choose another [run] out",
            output->directory, found, found);
    return weft_error_set(
        err, WEFT_E_USER,
        "[run] out = %s already contains a run (%s). Fix: --resume continues it, --overwrite removes it, "
        "or choose another [run] out",
        output->directory, found);
}

static bool is_same_directory(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static weft_status check_place(const char *directory, const char *model, const char *tokenizer, weft_error *err) {
    static const char fix[] = "Fix: choose a directory of the run's own, such as runs/one";
    const char *const read[] = {model, tokenizer};
    if (strlen(directory) > MOST_DIRECTORY)
        return weft_error_set(err, WEFT_E_USER, "[run] out: the path has %zu bytes. Allowed: at most %d",
                              strlen(directory), MOST_DIRECTORY);
    if (is_same_directory(directory, "/"))
        return weft_error_set(err, WEFT_E_USER, "[run] out = %s is the root of the file system. %s", directory, fix);
    for (int i = 0; i < 2; i++)
        if (read[i] != NULL && is_same_directory(directory, read[i]))
            return weft_error_set(err, WEFT_E_USER, "[run] out = %s is the directory of the %s that this run reads. %s",
                                  directory, i == 0 ? "model" : "tokenizer", fix);
    return WEFT_OK;
}

/* A resume is checked before the directory is created, so that a mistyped [run] out leaves no files. An unused lock is
 * removed: it would look like that of a run. */
weft_status weft_output_open(weft_output **out, const char *directory, weft_output_mode mode, bool writes,
                             const char *model, const char *tokenizer, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = writes ? check_place(directory, model, tokenizer, err) : WEFT_OK;
    weft_output *output = weft_alloc(1, sizeof *output);
    *output = (weft_output){.directory = weft_strdup(directory), .mode = mode, .writes = writes, .lock = -1};
    if (status == WEFT_OK && writes && mode == WEFT_OUTPUT_RESUME) status = check_directory(output, err);
    if (status == WEFT_OK && writes) status = weft_tree_make(directory, err);
    if (status == WEFT_OK && writes) status = take_lock(output, err);
    if (status == WEFT_OK && writes) status = check_directory(output, err);
    if (status == WEFT_OK) *out = output;
    else if (output->made_lock) (void)unlink(weft_output_path(output, path, ".lock"));
    if (status != WEFT_OK) weft_output_close(output);
    return status;
}

void weft_output_close(weft_output *output) {
    if (output == NULL) return;
    if (output->lock >= 0) (void)close(output->lock);
    free(output->directory);
    free(output);
}

/* Removes files like "config.ini.4711.tmp". */
static weft_status remove_if_temporary(void *context, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    for (int i = 0; i < N_LEFT; i++) {
        const size_t n = strlen(left_by_a_run[i]);
        const char *at = name + n;
        const bool is_file = strchr(left_by_a_run[i], '.') != NULL;
        if (!is_file || strncmp(name, left_by_a_run[i], n) != 0 || at[0] != '.' || at[1] < '0' || at[1] > '9') continue;
        at += 1 + strspn(at + 1, "0123456789");
        if (strcmp(at, ".tmp") == 0 && unlink(weft_output_path(context, path, name)) != 0 && errno != ENOENT)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

weft_status weft_output_begin(const weft_output *output, weft_error *err) {
    const bool overwrites = output->had_run && output->mode == WEFT_OUTPUT_OVERWRITE;
    char path[WEFT_PATH_BYTES], foreign[WEFT_PATH_BYTES] = "";
    weft_status status = WEFT_OK;
    if (!output->writes) return WEFT_OK;
    if (output->had_run)
        status = weft_tree_visit(output->directory, remove_if_temporary, (void *)(uintptr_t)output, err);
    if (status == WEFT_OK && overwrites) status = weft_unknown_files_find(foreign, output->directory, err);
    if (foreign[0] != '\0')
        return weft_error_set(
            err, WEFT_E_USER,
            "[run] out = %s: --overwrite removes the files of a run, and no run wrote %s. Fix: move it, "
            "or choose another [run] out",
            output->directory, foreign);
    for (int i = 0; overwrites && i < N_LEFT && status == WEFT_OK; i++)
        status = weft_tree_remove(weft_output_path(output, path, left_by_a_run[i]), err);
    if (status != WEFT_OK || has_mark(output)) return status;
    if (pwrite(output->lock, lock_text, sizeof lock_text - 1, 0) == (ssize_t)sizeof lock_text - 1) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s/.lock cannot be written: %s", output->directory, strerror(errno));
}

weft_status weft_output_protect(const weft_output *output, const char *path, weft_error *err) {
    char *input = path != NULL && output->writes ? realpath(path, NULL) : NULL;
    char name[WEFT_PATH_BYTES], own[WEFT_PATH_BYTES];
    bool inside = false;
    for (int i = 0; input != NULL && i < N_LEFT && !inside; i++) {
        if (realpath(weft_output_path(output, name, left_by_a_run[i]), own) == NULL) continue;
        const size_t n = strlen(own);
        inside = strncmp(input, own, n) == 0 && (input[n] == '\0' || input[n] == '/');
    }
    free(input);
    if (!inside) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "%s is read by this run, which would remove or overwrite it. Fix: choose another [run] out, or "
        "move it out of %s",
        path, output->directory);
}
