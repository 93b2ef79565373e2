/* host/train/leavings.c: see leavings.h. Names are what is judged: what a run writes has names of a few forms. */
#include "train/leavings.h"

#include "adapter/origin.h"
#include "adapter/tensors.h"
#include "base/words.h"
#include "run/best.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef bool (*name_test)(const char *name);

static bool begins_with(const char *name, const char *begin) {
    return strncmp(name, begin, strlen(begin)) == 0;
}

/* Of a Hugging Face directory: weights, their index, configuration, and the files of a tokenizer. */
static bool is_of_model(const char *name) {
    static const char *const others[] = {"config.json",
                                         WEFT_ADAPTER_WEIGHTS,
                                         WEFT_ADAPTER_CONFIG,
                                         WEFT_ADAPTER_ORIGIN,
                                         "generation_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "vocab.txt",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "preprocessor_config.json"};
    if (begins_with(name, "model") &&
        (weft_words_end(name, ".safetensors") || weft_words_end(name, ".safetensors.index.json")))
        return true;
    if (begins_with(name, "tokenizer")) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return true;
    return false;
}

static bool is_of_checkpoint(const char *name) {
    return is_of_model(name) || strcmp(name, "state") == 0 || strcmp(name, "manifest.json") == 0;
}

static bool is_of_state(const char *name) {
    return weft_words_end(name, ".safetensors") || strcmp(name, "run.json") == 0 || strcmp(name, "config.ini") == 0;
}

/* "step-12" and the link "best", and ".step-12.tmp", ".step-12.old" or ".best.tmp" of a save that was cut short. */
static bool is_checkpoint(const char *name) {
    const bool hidden = name[0] == '.';
    const char *at = name + hidden;
    if (strcmp(name, WEFT_BEST_NAME) == 0 || strcmp(name, "." WEFT_BEST_NAME ".tmp") == 0) return true;
    if (!begins_with(at, "step-")) return false;
    at += strlen("step-");
    if (*at < '0' || *at > '9') return false;
    at += strspn(at, "0123456789");
    return hidden ? strcmp(at, ".tmp") == 0 || strcmp(at, ".old") == 0 : *at == '\0';
}

/* One of several adapters has a directory of its own, which says so itself. */
static bool is_adapter(const char *where, const char *name) {
    char *path = NULL;
    bool is = asprintf(&path, "%s/%s/%s", where, name, WEFT_ADAPTER_ORIGIN) >= 0;
    if (!is) return false;
    is = access(path, F_OK) == 0;
    free(path);
    return is;
}

static weft_status judge_names(const char *path, const char *inside, name_test is_known, weft_error *err);

static weft_status judge_adapter(const char *path, const char *inside, const char *name, weft_error *err) {
    char *within = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&within, "%s/%s", inside, name) < 0) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a path");
    status = judge_names(path, within, is_of_model, err);
    free(within);
    return status;
}

/* Whether all names in path/inside pass; a directory that is not there has none. A link is removed and not followed, so
 * what is behind it is not looked at. */
static weft_status judge_names(const char *path, const char *inside, name_test is_known, weft_error *err) {
    char *where = NULL;
    const struct dirent *entry = NULL;
    struct stat about;
    DIR *directory = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&where, "%s/%s", path, inside) < 0) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a path");
    if (lstat(where, &about) == 0 && S_ISDIR(about.st_mode)) directory = opendir(where);
    while (directory != NULL && status == WEFT_OK && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_known(entry->d_name)) continue;
        if ((is_known == is_of_model || is_known == is_of_checkpoint) && is_adapter(where, entry->d_name)) {
            status = judge_adapter(path, inside, entry->d_name, err);
            continue;
        }
        status = weft_error_set(err, WEFT_E_USER,
                                "--overwrite removes %s, and no run wrote %s/%s: move it away, or choose another [run] "
                                "out",
                                where, where, entry->d_name);
    }
    if (directory != NULL) (void)closedir(directory);
    free(where);
    return status;
}

static weft_status judge_checkpoint(const char *checkpoints, const char *name, weft_error *err) {
    char state[300];
    weft_status status = judge_names(checkpoints, name, is_of_checkpoint, err);
    (void)snprintf(state, sizeof state, "%.255s/state", name);
    return status == WEFT_OK ? judge_names(checkpoints, state, is_of_state, err) : status;
}

weft_status weft_leavings_judge(const char *directory, weft_error *err) {
    char *checkpoints = NULL;
    const struct dirent *entry = NULL;
    DIR *list = NULL;
    weft_status status = judge_names(directory, "model", is_of_model, err);
    if (status == WEFT_OK) status = judge_names(directory, "checkpoints", is_checkpoint, err);
    if (status == WEFT_OK && asprintf(&checkpoints, "%s/checkpoints", directory) < 0)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a path");
    if (status == WEFT_OK) list = opendir(checkpoints);
    while (list != NULL && status == WEFT_OK && (entry = readdir(list)) != NULL)
        if (begins_with(entry->d_name, "step-")) status = judge_checkpoint(checkpoints, entry->d_name, err);
    if (list != NULL) (void)closedir(list);
    free(checkpoints);
    return status;
}
