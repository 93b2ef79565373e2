/* host/checkpoint/save.c: writes a checkpoint, or the model alone. Each rank writes what it keeps straight into the
 * final files; rank 0 makes them, writes what lies beside, the manifest last, and gives the name: nothing but that
 * rename changes what a reader sees. */
#include "checkpoint/checkpoint.h"

#include "adapter/adapter_save.h"
#include "adapter/tensors.h"
#include "base/file.h"
#include "base/join.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_record.h"
#include "checkpoint/staging.h"
#include "model/convert.h"
#include "model/packed.h"
#include "model/region.h"
#include "model/weights.h"
#include "plugin/enter.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- types ---- */

static int32_t saved_dtype(const weft_engine *engine) {
    switch (engine->plan.run->settings.checkpoint.dtype) {
    case WEFT_SAVE_FP32: return WEFT_F32;
    case WEFT_SAVE_BF16: return WEFT_BF16;
    case WEFT_SAVE_FP16: return WEFT_F16;
    default: return weft_plan_saves_base(&engine->plan) ? engine->stored_dtype : WEFT_F32; /* as PEFT saves adapters */
    }
}

/* True if numbers of one type come back from another as they were. */
static bool numbers_survive(const char *values, int32_t held, int64_t n, int32_t dtype) {
    enum { PIECE = 4096 };
    float there[PIECE], back[PIECE];
    const int64_t width = weft_dtype_bytes(held);
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = n - at < PIECE ? n - at : PIECE;
        (void)weft_convert(there, dtype, values + width * at, held, m);
        (void)weft_convert(back, held, there, dtype, m);
        if (memcmp(back, values + width * at, (size_t)(width * m)) != 0) return false;
    }
    return true;
}

/* Elements [first, end) of a parameter, which this rank keeps. */
static weft_status range_survives(const weft_region *region, int32_t parameter, int64_t first, int64_t end,
                                  int32_t dtype, weft_staged *staged, bool *out, weft_error *err) {
    const int32_t held = weft_region_dtype(region, parameter);
    weft_status status = WEFT_OK;
    for (; first < end && *out && status == WEFT_OK; first += WEFT_REGION_PIECE) {
        const int64_t n = end - first < WEFT_REGION_PIECE ? end - first : WEFT_REGION_PIECE;
        const void *values = NULL;
        status = weft_region_ask(region, staged, parameter, first, n, err);
        if (status == WEFT_OK) status = weft_region_take(region, staged, 0, parameter, first, &values, err);
        if (status == WEFT_OK) *out = numbers_survive(values, held, n, dtype);
    }
    return status;
}

/* Whether the save has the parameter. */
static bool is_saved(const weft_engine *engine, int32_t parameter) {
    return weft_plan_saves_base(&engine->plan) || weft_adapter_saves(engine->plan.declared, parameter);
}

/* Trained parameters always lose bits in a narrower type. Frozen ones do not where they came from files of that type,
 * and what is packed is saved as it is. Each rank looks at what it would write. */
static weft_status frozen_survive(const weft_engine *engine, int32_t dtype, bool *out, weft_error *err) {
    const weft_region region = weft_engine_parameters(engine);
    weft_staged staged;
    bool mine = true;
    weft_status status =
        weft_staged_open(&staged, engine->kernels, engine->device, weft_f32_bytes(WEFT_REGION_PIECE), err);
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && mine && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const bool may_lose = !p->trainable && !weft_parameter_is_packed(p) && is_saved(engine, i);
        for (int64_t first = 0, end = 0; may_lose && first < p->numel && status == WEFT_OK; first = end)
            if (weft_region_written_by(&region, i, first, &end) == engine->peers.rank)
                status = range_survives(&region, i, first, end, dtype, &staged, &mine, err);
    }
    (void)weft_staged_close(&staged, NULL);
    status = weft_peers_agree(&engine->peers, status, err);
    return status == WEFT_OK ? weft_peers_all(&engine->peers, out, mine, err) : status;
}

static weft_status choose_masters(const weft_engine *engine, int32_t dtype, weft_masters *out, weft_error *err) {
    bool survive = true;
    weft_status status = WEFT_OK;
    *out = WEFT_MASTERS_NONE;
    if (dtype == WEFT_F32) return WEFT_OK;
    status = frozen_survive(engine, dtype, &survive, err);
    if (status == WEFT_OK) *out = survive ? WEFT_MASTERS_TRAINABLE : WEFT_MASTERS_ALL;
    return status;
}

/* ---- space ---- */

/* What a saved directory takes beyond its numbers: so much for what header, index and manifest say of a tensor, for the
 * last block of a file, and for the rest of state/run.json and manifest.json. */
enum { TENSOR_BYTES = 400, BLOCK_BYTES = 4096, RECORD_BYTES = 32 << 10 };

static int64_t file_size(const char *directory, const char *name) {
    char path[WEFT_PATH_BYTES];
    struct stat about;
    if (weft_path_join(path, directory, name, NULL) != WEFT_OK) return 0;
    return stat(path, &about) == 0 ? (int64_t)about.st_size : 0;
}

/* Bytes of a saved model's directory, at most: it may need fewer by a few blocks. */
static int64_t estimate_model_bytes(const weft_engine *engine, int32_t dtype, const weft_text *text) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++)
        if (is_saved(engine, i)) bytes += weft_packed_file_bytes(&engine->plan.declared->parameters[i], dtype);
    bytes += bytes / WEFT_SHARD_BYTES * BLOCK_BYTES; /* full shards */
    bytes += TENSOR_BYTES * (int64_t)engine->plan.declared->n_parameters + (int64_t)engine->plan.declared->config_bytes;
    bytes += 4 * BLOCK_BYTES; /* directory, config.json, index, last shard */
    for (uint32_t i = 0; text != NULL && text->plugin->file != NULL; i++) {
        const char *name = text->plugin->file(text->tokenizer, i);
        if (name == NULL) break;
        bytes += file_size(text->directory, name) + BLOCK_BYTES;
    }
    return bytes;
}

static int64_t estimate_state_bytes(const weft_engine *engine, weft_masters masters) {
    const int64_t trained = weft_f32_bytes(weft_declared_numel(engine->plan.declared, true));
    const int64_t files = engine->plan.n_states + 2; /* masters may be one; run.json and config.ini */
    int64_t bytes = trained * engine->plan.n_states +
                    TENSOR_BYTES * files * (int64_t)engine->plan.declared->n_parameters;
    bytes += files * BLOCK_BYTES + RECORD_BYTES;
    if (masters == WEFT_MASTERS_TRAINABLE) bytes += trained;
    if (masters == WEFT_MASTERS_ALL) bytes += weft_f32_bytes(weft_declared_numel(engine->plan.declared, false));
    return bytes;
}

/* ---- files ---- */

static weft_status copy_stream(FILE *from, FILE *to, const char *path, weft_error *err) {
    char bytes[1 << 16];
    size_t n = 0;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0) (void)fwrite(bytes, 1, n, to); /* commit sees a failure */
    if (ferror(from)) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status copy_file(const char *to_directory, const char *from_directory, const char *name, weft_error *err) {
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    weft_file file;
    FILE *out = NULL, *in = NULL;
    weft_status status = weft_path_join(from, from_directory, name, err);
    if (status == WEFT_OK) status = weft_path_join(to, to_directory, name, err);
    if (status != WEFT_OK) return status;
    in = fopen(from, "rbe");
    if (in == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", from, strerror(errno));
    out = weft_file_begin(&file, to, err);
    if (out == NULL) status = WEFT_E_SYSTEM;
    if (status == WEFT_OK) status = copy_stream(in, out, from, err);
    if (status == WEFT_OK) status = weft_file_commit(&file, err);
    else weft_file_cancel(&file);
    (void)fclose(in);
    return status;
}

/* The tokenizer's own files; what the weights brought stays as it is. */
static weft_status copy_text(const char *directory, const weft_text *text, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; text != NULL && text->plugin->file != NULL && status == WEFT_OK; i++) {
        const char *name = text->plugin->file(text->tokenizer, i);
        char path[WEFT_PATH_BYTES];
        struct stat about;
        if (name == NULL) break;
        if (name[0] == '\0' || strchr(name, '/') != NULL)
            return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name",
                                  name);
        status = weft_path_join(path, directory, name, err);
        if (status == WEFT_OK && lstat(path, &about) != 0) status = copy_file(directory, text->directory, name, err);
    }
    return status;
}

/* What is saved, where: a directory that is not yet called what it will be. */
typedef struct saving {
    const weft_engine *engine;
    const char *directory;
    int32_t dtype;
    const weft_text *text;
    const weft_record *record; /* of a checkpoint */
    json_t *roots;             /* the same, on rank 0: what the manifest says of tensors */
} saving;

static weft_status tell_root(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err) {
    const saving *self = context;
    const char *name = path + strlen(self->directory) + 1;
    json_t *file = json_object_get(self->roots, name);
    if (file == NULL) {
        file = json_object();
        (void)json_object_set_new(self->roots, name, file);
    }
    if (json_object_set_new(file, tensor, json_string(hex)) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its hashes", path);
}

static weft_status write_adapter(saving *self, const weft_region *region, const weft_roots *roots, weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_adapter_saving what = {.region = region,
                                      .directory = self->directory,
                                      .base = plan->run->settings.model.path,
                                      .origin = plan->origin,
                                      .dtype = self->dtype,
                                      .own_alone = weft_plan_saves_base(plan)};
    return plan->declared->adapter == NULL ? WEFT_OK : weft_adapter_save(&what, roots, err);
}

/* The base, unless it stays where it is, and the adapter, if there is one. */
static weft_status write_weights(saving *self, const weft_roots *roots, weft_error *err) {
    const weft_region region = weft_engine_parameters(self->engine);
    weft_status status = WEFT_OK;
    if (weft_plan_saves_base(&self->engine->plan))
        status = weft_weights_save(&region, self->directory, self->dtype, WEFT_SHARD_BYTES, roots, err);
    return status == WEFT_OK ? write_adapter(self, &region, roots, err) : status;
}

static weft_status write_model(saving *self, weft_error *err) {
    const weft_peers *peers = &self->engine->peers;
    const weft_roots roots = {tell_root, self};
    weft_status status = write_weights(self, self->record == NULL ? NULL : &roots, err);
    if (status != WEFT_OK) return status;
    if (weft_peers_first(peers)) status = copy_text(self->directory, self->text, err);
    return weft_peers_agree(peers, status, err);
}

/* ---- state/ ---- */

/* A file of state/, by the name of what it holds. */
static weft_status write_region(saving *self, const weft_region *region, const char *name, bool trainable_only,
                                weft_error *err) {
    const weft_roots roots = {tell_root, self};
    char path[WEFT_PATH_BYTES], file[256];
    weft_status status = WEFT_OK;
    (void)snprintf(file, sizeof file, "state/%s.safetensors", name);
    status = weft_path_join(path, self->directory, file, err);
    return status == WEFT_OK ? weft_weights_save_file(region, path, trainable_only, &roots, err) : status;
}

static weft_status write_regions(saving *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_region parameters = weft_engine_parameters(engine);
    const weft_masters masters = self->record->masters;
    weft_status status = WEFT_OK;
    if (masters != WEFT_MASTERS_NONE)
        status = write_region(self, &parameters, "master", masters == WEFT_MASTERS_TRAINABLE, err);
    for (int64_t i = 0; i < engine->plan.n_states && status == WEFT_OK; i++) {
        const weft_region region = weft_engine_state(engine, i);
        status = write_region(self, &region, engine->plan.states[i].name, true, err);
    }
    return status;
}

static weft_status make_state(const saving *self, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(directory, self->directory, "state", err);
    if (status != WEFT_OK) return status;
    if (mkdir(directory, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", directory, strerror(errno));
    return status;
}

/* What one rank writes once all have written theirs: the manifest is last. */
static weft_status complete_checkpoint(const saving *self, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, self->directory, "state/run.json", err);
    if (status == WEFT_OK) status = weft_record_save(self->record, path, err);
    if (status == WEFT_OK) status = weft_path_join(path, self->directory, "state/config.ini", err);
    if (status == WEFT_OK) status = weft_config_save_resolved(self->engine->plan.run->config, path, err);
    if (status == WEFT_OK) status = weft_path_join(path, self->directory, "state", err);
    if (status == WEFT_OK) status = weft_directory_sync(path, err);
    if (status != WEFT_OK) return status;
    return weft_manifest_write(self->directory, self->record->state.step, self->engine->plan.layout->grid, self->roots,
                               err);
}

/* ---- the whole ---- */

static weft_status write_checkpoint(saving *self, weft_error *err) {
    const weft_peers *peers = &self->engine->peers;
    weft_status status = write_model(self, err);
    if (status == WEFT_OK && weft_peers_first(peers)) status = make_state(self, err);
    status = weft_peers_agree(peers, status, err);
    if (status == WEFT_OK) status = write_regions(self, err);
    if (status == WEFT_OK && weft_peers_first(peers)) status = complete_checkpoint(self, err);
    return weft_peers_agree(peers, status, err);
}

/* Says what failed and that nothing is lost, on the rank that has something to say. */
static weft_status explain_failure(weft_error *err, weft_status status, const char *parent, const char *name) {
    size_t n = 0;
    if (err == NULL || err->text[0] == '\0') return status;
    (void)weft_error_prefix(err, "%s/%s could not be saved: ", parent, name);
    n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof err->text - n, "; what was saved before is as it was");
    return status;
}

/* Saves into parent/name: rank 0 makes a directory beside it, all ranks write there, rank 0 gives it the name. bytes:
 * that it takes. */
static weft_status save_checkpoint(saving *self, const char *parent, const char *name, int64_t bytes, weft_error *err) {
    const weft_peers *peers = &self->engine->peers;
    weft_staging staging = {0};
    weft_status status = WEFT_OK;
    if (weft_peers_first(peers)) status = weft_staging_begin(&staging, parent, name, err);
    else status = weft_staging_name(&staging, parent, name, err);
    if (status == WEFT_OK && weft_peers_first(peers)) status = weft_space_check(parent, name, bytes, err);
    self->directory = staging.path;
    status = weft_peers_agree(peers, status, err);
    if (status == WEFT_OK) status = self->record != NULL ? write_checkpoint(self, err) : write_model(self, err);
    if (status == WEFT_OK && weft_peers_first(peers)) status = weft_staging_commit(&staging, err);
    if (weft_peers_first(peers)) weft_staging_cancel(&staging);
    else weft_staging_forget(&staging);
    return weft_peers_agree(peers, status, err);
}

weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text *text, weft_error *err) {
    weft_record record = {.state = *state,
                          .identities = *identities,
                          .updates = engine->updates,
                          .stored_dtype = engine->stored_dtype,
                          .choices = engine->choices};
    saving self = {.engine = engine, .dtype = saved_dtype(engine), .text = text, .record = &record};
    char name[64];
    weft_status status = WEFT_OK;
    self.roots = json_object();
    if (self.roots == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a manifest");
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    status = weft_peers_agree(&engine->peers, status, err);
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    if (status == WEFT_OK) status = choose_masters(engine, self.dtype, &record.masters, err);
    if (status == WEFT_OK)
        status = save_checkpoint(&self, directory, name,
                                 estimate_model_bytes(engine, self.dtype, text) +
                                     estimate_state_bytes(engine, record.masters),
                                 err);
    json_decref(self.roots);
    return status == WEFT_OK ? status : explain_failure(err, status, directory, name);
}

/* The directory that holds `directory`, and the name that it has there. */
static weft_status split_path(char parent[WEFT_PATH_BYTES], const char **name, const char *directory, weft_error *err) {
    const char *slash = strrchr(directory, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - directory);
    *name = slash == NULL ? directory : slash + 1;
    if (n >= WEFT_PATH_BYTES || **name == '\0')
        return weft_error_set(err, WEFT_E_USER, "%s: is no name of a directory to save a model in", directory);
    memcpy(parent, directory, n);
    if (n == 0) parent[n++] = slash == NULL ? '.' : '/';
    parent[n] = '\0';
    return WEFT_OK;
}

weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text *text, weft_error *err) {
    saving self = {.engine = engine, .dtype = saved_dtype(engine), .text = text};
    const char *name = NULL;
    char parent[WEFT_PATH_BYTES];
    weft_status status = split_path(parent, &name, directory, err);
    if (status != WEFT_OK) return status;
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    status = weft_peers_agree(&engine->peers, status, err);
    if (status == WEFT_OK)
        status = save_checkpoint(&self, parent, name, estimate_model_bytes(engine, self.dtype, text), err);
    return status == WEFT_OK ? status : explain_failure(err, status, parent, name);
}
