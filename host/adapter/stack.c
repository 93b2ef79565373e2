/* host/adapter/stack.c: see stack.h. */
#include "adapter/stack.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/safetensors.h"
#include "base/units.h"
#include "plugin/enter.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FORMAT = 2, PIECE_BYTES = 1 << 20 };

/* ---- base identity ---- */

static weft_status hash_weights(char hex[65], const weft_safetensors *files, weft_error *err) {
    weft_hash hash = {0};
    char *piece = weft_alloc(PIECE_BYTES, 1);
    weft_status status = weft_hash_start(&hash, err);
    for (int32_t i = 0; i < files->n_tensors && status == WEFT_OK; i++) {
        const weft_tensor *tensor = &files->tensors[i];
        weft_hash_put(&hash, tensor->name, strlen(tensor->name) + 1);
        weft_hash_put(&hash, &tensor->dtype, sizeof tensor->dtype);
        weft_hash_put(&hash, tensor->dims, (size_t)tensor->rank * sizeof *tensor->dims);
        for (int64_t at = 0; at < tensor->bytes && status == WEFT_OK; at += PIECE_BYTES) {
            const int64_t n = weft_smaller(PIECE_BYTES, tensor->bytes - at);
            status = weft_safetensors_read(files, piece, tensor, at, n, err);
            if (status == WEFT_OK) weft_hash_put(&hash, piece, (size_t)n);
        }
    }
    if (status == WEFT_OK) status = weft_hash_finish_hex(&hash, hex, err);
    weft_hash_free(&hash);
    free(piece);
    return status;
}

/* Includes the inode's change time, which also changes when a program resets the modification time. */
static weft_status hash_state(char hex[65], const weft_safetensors *files, weft_error *err) {
    weft_hash hash = {0};
    weft_status status = weft_hash_start(&hash, err);
    for (int32_t i = 0; i < files->n_files && status == WEFT_OK; i++) {
        const weft_tensor_file *file = &files->files[i];
        const char *slash = strrchr(file->path, '/');
        char *line = NULL;
        struct stat is;
        if (fstat(file->descriptor, &is) != 0) {
            status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", file->path, strerror(errno));
            break;
        }
        line = weft_text_of("%s %lld %lld %lld.%09ld %lld.%09ld\n", slash == NULL ? file->path : slash + 1,
                            (long long)is.st_size, (long long)is.st_ino, (long long)is.st_mtim.tv_sec,
                            is.st_mtim.tv_nsec, (long long)is.st_ctim.tv_sec, is.st_ctim.tv_nsec);
        weft_hash_put(&hash, line, strlen(line));
        free(line);
    }
    if (status == WEFT_OK) status = weft_hash_finish_hex(&hash, hex, err);
    weft_hash_free(&hash);
    return status;
}

static void take_base(weft_adapter_origin *out, const weft_adapter_origin *from) {
    memcpy(out->base, from->base, sizeof out->base);
    memcpy(out->files, from->files, sizeof out->files);
}

weft_status weft_base_identify(weft_adapter_origin *out, const char *directory, const weft_adapter_origin *known,
                               weft_error *err) {
    static _Thread_local weft_adapter_origin last; /* several plans of one process use the same base */
    weft_adapter_origin now = {.n_all = 0};
    weft_safetensors *files = NULL;
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    if (status == WEFT_OK) status = hash_state(now.files, files, err);
    if (status == WEFT_OK && known != NULL && known->base[0] != '\0' && strcmp(known->files, now.files) == 0)
        take_base(&last, known);
    if (status == WEFT_OK && strcmp(last.files, now.files) != 0) {
        status = hash_weights(now.base, files, err);
        if (status == WEFT_OK) take_base(&last, &now);
    }
    if (status == WEFT_OK) take_base(out, &last);
    weft_safetensors_close(files);
    return status;
}

weft_status weft_base_compare(bool *same, weft_adapter_origin *now, const weft_adapter_origin *of,
                              const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    *same = true;
    if (of->base[0] == '\0') return WEFT_OK;
    status = weft_base_identify(now, directory, of, err);
    if (status == WEFT_OK) *same = strcmp(of->base, now->base) == 0;
    return status;
}

/* ---- the file ---- */

weft_status weft_origin_save(const weft_adapter_origin *origin, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_ORIGIN, err);
    json_t *object = json_pack("{s:i, s:s, s:s, s:s, s:s}", "format", FORMAT, "plugin", origin->plugin, "version",
                               origin->version, "base", origin->base, "base_files", origin->files);
    json_t *list = json_array();
    for (int32_t i = 0; i < origin->n_all; i++) (void)json_array_append_new(list, json_string(origin->all[i]));
    if (origin->n_all > 0) (void)json_object_set(object, "adapters", list);
    json_decref(list);
    if (status == WEFT_OK) status = weft_file_write_json(path, object, JSON_INDENT(2), err);
    json_decref(object);
    return status;
}

static void take_text(char *out, size_t size, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (text != NULL && strlen(text) < size) (void)snprintf(out, size, "%s", text);
}

weft_status weft_origin_load(weft_adapter_origin *out, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *object = NULL;
    const json_t *list = NULL;
    bool is_there = false;
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_ORIGIN, err);
    memset(out, 0, sizeof *out);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    if (status != WEFT_OK || !is_there) return status;
    status = weft_json_read(&object, path, 0, err);
    if (status != WEFT_OK) return status;
    take_text(out->plugin, sizeof out->plugin, object, "plugin");
    take_text(out->version, sizeof out->version, object, "version");
    take_text(out->base, sizeof out->base, object, "base");
    take_text(out->files, sizeof out->files, object, "base_files");
    list = json_object_get(object, "adapters");
    for (size_t i = 0; i < json_array_size(list) && i < WEFT_MOST_ADAPTERS; i++) {
        const char *id = json_string_value(json_array_get(list, i));
        if (id == NULL || id[0] == '\0' || strlen(id) >= sizeof out->all[i]) continue;
        (void)snprintf(out->all[out->n_all++], sizeof out->all[i], "%s", id);
    }
    if (list != NULL && (out->n_all == 0 || (size_t)out->n_all != json_array_size(list)))
        status = weft_error_set(err, WEFT_E_DATA,
                                "%s: adapters is not valid. Allowed: a list of 1 to %d ids of plugins", path,
                                WEFT_MOST_ADAPTERS);
    json_decref(object);
    return status;
}

/* ---- places ---- */

static bool is_of_peft(const weft_adapter_plugin *plugin) {
    return (plugin->flags & WEFT_ADAPTER_PEFT) != 0;
}

static int32_t find_home(const weft_stack *stack) {
    for (int32_t i = 0; i < stack->n; i++)
        if (is_of_peft(stack->plugins[i])) return i;
    for (int32_t i = 0; i < stack->n; i++)
        if (WEFT_HAS(stack->plugins[i], merge) && stack->plugins[i]->merge != NULL) return i;
    return 0;
}

weft_stack weft_stack_of(const weft_declared *declared) {
    weft_stack stack = {.n = declared->n_adapters};
    for (int32_t i = 0; i < stack.n; i++) stack.plugins[i] = declared->adapters[i].plugin;
    return stack;
}

int32_t weft_stack_home(const weft_declared *declared) {
    const weft_stack stack = weft_stack_of(declared);
    return find_home(&stack);
}

weft_held weft_stack_all(const weft_stack *stack) {
    weft_held held = {.n = stack->n, .home = find_home(stack)};
    for (int32_t i = 0; i < stack->n; i++) held.has[i] = true;
    return held;
}

weft_status weft_stack_source(char out[WEFT_PATH_BYTES], const weft_stack *stack, const weft_held *held,
                              int32_t adapter, const char *directory, weft_error *err) {
    if (adapter == held->home) return weft_path_join(out, "", directory, err);
    return weft_path_join(out, directory, weft_plugin_id(stack->plugins[adapter]), err);
}

weft_status weft_stack_place(char out[WEFT_PATH_BYTES], const weft_declared *declared, int32_t adapter,
                             const char *directory, weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    const weft_held all = weft_stack_all(&stack);
    return weft_stack_source(out, &stack, &all, adapter, directory, err);
}

/* ---- adapters in a directory ---- */

weft_status weft_stack_refuse(const weft_stack *stack, const char *directory, weft_error *err) {
    weft_adapter_origin origin;
    char has[300] = "", wanted[300] = "";
    const weft_status status = weft_origin_load(&origin, directory, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < origin.n_all; i++)
        weft_words_append(has, sizeof has, "%s%s", i > 0 ? ", " : "", origin.all[i]);
    for (int32_t i = 0; i < stack->n; i++)
        weft_words_append(wanted, sizeof wanted, "%s%s", i > 0 ? ", " : "", weft_plugin_id(stack->plugins[i]));
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s contains %s, and [adapter] plugin is %s. Fix: set [adapter] plugin to the same names in the same order, or "
        "remove the key; further adapters are allowed after them if they are trained",
        directory, has[0] != '\0' ? has : "one adapter", wanted);
}

static int32_t find_id(const weft_stack *stack, const char *id, int32_t first) {
    for (int32_t i = first; i < stack->n; i++)
        if (strcmp(weft_plugin_id(stack->plugins[i]), id) == 0) return i;
    return -1;
}

/* Returns the adapter of a directory with one; -1: unknown. With a single adapter, its plugin checks the directory. A
 * directory in PEFT's format belongs to the only adapter that PEFT supports. */
static int32_t find_single(const weft_stack *stack, const weft_adapter_origin *origin) {
    int32_t found = -1, n = 0;
    if (stack->n == 1) return 0;
    if (origin->plugin[0] != '\0') return find_id(stack, origin->plugin, 0);
    for (int32_t i = 0; i < stack->n; i++) {
        if (!is_of_peft(stack->plugins[i])) continue;
        found = i;
        n++;
    }
    return n == 1 ? found : -1;
}

weft_status weft_stack_held(weft_held *out, const weft_stack *stack, const char *directory, weft_error *err) {
    weft_adapter_origin origin;
    weft_stack found = {.n = 0};
    int32_t at[WEFT_MOST_ADAPTERS], last = -1;
    const weft_status status = weft_origin_load(&origin, directory, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < (origin.n_all > 0 ? origin.n_all : 1); i++) {
        last = origin.n_all > 0 ? find_id(stack, origin.all[i], last + 1) : find_single(stack, &origin);
        if (last < 0) return weft_stack_refuse(stack, directory, err);
        out->has[last] = true;
        at[found.n] = last;
        found.plugins[found.n++] = stack->plugins[last];
    }
    out->n = found.n;
    out->home = at[find_home(&found)];
    return WEFT_OK;
}
