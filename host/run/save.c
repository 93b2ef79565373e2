/* host/run/save.c: writes a checkpoint, or the model only. Each rank writes its shards directly into the final files;
 * rank 0 creates them, writes the other files, the manifest last, and renames the directory. */
#include "run/save.h"

#include "adapter/adapter.h"
#include "base/file.h"
#include "model/convert.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "run/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

/* Sets *out to false if elements [first, end) of a parameter, on this rank, change in a round trip through dtype. */
static weft_status range_survives(const weft_region *region, int32_t parameter, int64_t first, int64_t end,
                                  int32_t dtype, weft_double_buffer *double_buffer, bool *out, weft_error *err) {
    enum { PIECE = 4096 };
    const int32_t held = weft_region_dtype(region, parameter);
    const int64_t width = weft_dtype_bytes(held);
    float narrow[PIECE], back[PIECE];
    weft_status status = WEFT_OK;
    for (; first < end && *out && status == WEFT_OK; first += WEFT_REGION_PIECE) {
        const int64_t n = end - first < WEFT_REGION_PIECE ? end - first : WEFT_REGION_PIECE;
        const void *values = NULL;
        status = weft_region_query(region, double_buffer, parameter, first, n, err);
        if (status == WEFT_OK) status = weft_region_take(region, double_buffer, 0, parameter, first, &values, err);
        for (int64_t at = 0; at < n && *out && status == WEFT_OK; at += PIECE) {
            const int64_t m = n - at < PIECE ? n - at : PIECE;
            const char *from = (const char *)values + width * at;
            (void)weft_convert(narrow, dtype, from, held, m);
            (void)weft_convert(back, held, narrow, dtype, m);
            *out = memcmp(back, from, (size_t)(width * m)) == 0;
        }
    }
    return status;
}

/* Bytes of the largest file of weights. */
static int64_t shard_bytes(const weft_engine *engine) {
    const double bytes = engine->plan.run->settings.checkpoint.max_shard * 1e9;
    return bytes < 1 ? 1 : (int64_t)bytes;
}

static bool is_saved(const weft_engine *engine, int32_t parameter) {
    const weft_parameter *p = &engine->plan.declared->parameters[parameter];
    return weft_plan_saves_base(&engine->plan) || p->added || p->trainable; /* the last two: with an adapter */
}

/* Selects the masters that a checkpoint in a narrower type needs. Trained parameters in another type always lose bits,
 * frozen ones not if they came from files of that type, packed ones never. Each rank checks its shards. */
static weft_status choose_masters(weft_saving *self, weft_error *err) {
    const weft_region *region = &self->parameters;
    const weft_declared *declared = region->declared;
    weft_double_buffer double_buffer;
    bool mine = true, survive = true;
    weft_status status = WEFT_OK;
    self->record.masters = WEFT_MASTERS_NONE;
    if (!self->is_checkpoint || self->dtype == WEFT_F32) return WEFT_OK;
    status = weft_double_buffer_open(&double_buffer, region->kernels, region->device, weft_f32_bytes(WEFT_REGION_PIECE),
                                     err);
    for (int32_t i = 0; i < declared->n_parameters && mine && status == WEFT_OK; i++) {
        const weft_parameter *p = &declared->parameters[i];
        const bool may_lose = !p->trainable && !weft_parameter_is_packed(p) && is_saved(self->engine, i);
        for (int64_t first = 0, end = 0; may_lose && first < p->numel && status == WEFT_OK; first = end)
            if (weft_region_written_by(region, i, first, &end) == self->peers->rank)
                status = range_survives(region, i, first, end, self->dtype, &double_buffer, &mine, err);
    }
    (void)weft_double_buffer_close(&double_buffer, NULL);
    status = weft_process_group_agree(self->peers, status, err);
    if (status == WEFT_OK) status = weft_process_group_all_true(self->peers, &survive, mine, err);
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (declared->parameters[i].trainable && declared->parameters[i].dtype != self->dtype)
            self->record.masters = WEFT_MASTERS_TRAINABLE;
    if (!survive) self->record.masters = WEFT_MASTERS_ALL;
    return status;
}

/* Bytes beyond the numbers: header, index and manifest per tensor, the last block of a file, run.json. */
enum { TENSOR_BYTES = 400, BLOCK_BYTES = 4096, RECORD_BYTES = 32 << 10 };

/* An upper bound of the directory's size; it may need a few blocks less. */
static int64_t estimate_bytes(const weft_saving *self) {
    const weft_declared *declared = self->parameters.declared;
    const weft_masters masters = self->record.masters;
    const weft_plan *plan = &self->engine->plan;
    const int64_t files = plan->n_states + 2; /* with masters, run.json and config.ini */
    int64_t bytes = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (is_saved(self->engine, i)) bytes += weft_packed_file_bytes(&declared->parameters[i], self->dtype);
    bytes += (2 * (bytes / shard_bytes(self->engine)) + 1) * BLOCK_BYTES; /* two shards exceed the size of one */
    bytes += TENSOR_BYTES * (int64_t)declared->n_parameters + (int64_t)declared->config_bytes;
    bytes += 4 * BLOCK_BYTES * (1 + (int64_t)declared->n_adapters); /* directory, config.json, index, last shard */
    for (int32_t i = 0; self->files != NULL && i < self->files->n; i++)
        bytes += (int64_t)self->files->files[i].bytes + BLOCK_BYTES;
    if (!self->is_checkpoint) return bytes;
    bytes += files * (TENSOR_BYTES * (int64_t)declared->n_parameters + BLOCK_BYTES) + RECORD_BYTES;
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (declared->parameters[i].trainable)
            bytes += weft_states_bytes(plan->states, plan->n_states, declared->parameters[i].numel);
    if (masters == WEFT_MASTERS_NONE) return bytes;
    return bytes + weft_f32_bytes(weft_declared_numel(declared, masters == WEFT_MASTERS_TRAINABLE));
}

/* Notes a tensor's root for the manifest. */
static weft_status note_root(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err) {
    const weft_saving *self = context;
    const char *name = path + strlen(self->directory) + 1;
    json_t *file = json_object_get(self->roots, name);
    if (file == NULL) {
        file = json_object();
        (void)json_object_set_new(self->roots, name, file);
    }
    if (json_object_set_new(file, tensor, json_string(hex)) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%s: no hash can be noted of '%s'", path, tensor);
}

static weft_status write_model(weft_saving *self, weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_roots all = {note_root, self}, *roots = self->is_checkpoint ? &all : NULL;
    const bool first = weft_process_group_is_rank_0(self->peers), has_base = weft_plan_saves_base(plan);
    weft_adapter_origin base = {0}, origins[WEFT_MOST_ADAPTERS];
    const weft_adapter_saving adapters = {.region = &self->parameters,
                                          .directory = self->directory,
                                          .base = plan->run->settings.model.path,
                                          .origins = origins,
                                          .dtype = self->dtype,
                                          .own_alone = has_base};
    weft_status status = WEFT_OK;
    if (has_base)
        status =
            weft_weights_save(&self->parameters, self->directory, self->dtype, shard_bytes(self->engine), roots, err);
    if (status == WEFT_OK && plan->declared->n_adapters > 0) {
        memcpy(origins, plan->origins, sizeof plan->origins);
        if (has_base && first) { /* the base that was just saved with its adapters is their base */
            status = weft_base_identify(&base, self->directory, NULL, err);
            for (int32_t i = 0; i < WEFT_MOST_ADAPTERS; i++) {
                memcpy(origins[i].base, base.base, sizeof base.base);
                memcpy(origins[i].files, base.files, sizeof base.files);
            }
        }
        status = weft_process_group_agree(self->peers, status, err);
        if (status == WEFT_OK) status = weft_adapter_save(&adapters, roots, err);
    }
    if (status != WEFT_OK) return status;
    if (first && self->files != NULL) status = weft_text_files_write(self->files, self->directory, err);
    return weft_process_group_agree(self->peers, status, err);
}

/* Writes state/NAME.safetensors. */
static weft_status write_region(weft_saving *self, const weft_region *region, const char *name, bool trainable_only,
                                weft_error *err) {
    const weft_roots roots = {note_root, self};
    char path[WEFT_PATH_BYTES], file[256];
    weft_status status = WEFT_OK;
    (void)snprintf(file, sizeof file, "state/%s.safetensors", name);
    status = weft_path_join(path, self->directory, file, err);
    return status == WEFT_OK ? weft_weights_save_file(region, path, trainable_only, &roots, err) : status;
}

/* Rank 0 writes the other files after all ranks' shards, the manifest last. */
static weft_status write_checkpoint(weft_saving *self, weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_masters masters = self->record.masters;
    const bool first = weft_process_group_is_rank_0(self->peers);
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES];
    weft_status status = write_model(self, err);
    if (status == WEFT_OK) status = weft_path_join(directory, self->directory, "state", err);
    if (status == WEFT_OK && first && mkdir(directory, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", directory, strerror(errno));
    status = weft_process_group_agree(self->peers, status, err);
    if (status == WEFT_OK && masters != WEFT_MASTERS_NONE)
        status = write_region(self, &self->parameters, "master", masters == WEFT_MASTERS_TRAINABLE, err);
    for (int64_t i = 0; i < plan->n_states && status == WEFT_OK; i++)
        status = write_region(self, &self->states[i], plan->states[i].name, true, err);
    if (status == WEFT_OK && first) {
        status = weft_path_join(path, directory, "run.json", err);
        if (status == WEFT_OK) status = weft_record_save(&self->record, path, err);
        if (status == WEFT_OK) status = weft_path_join(path, directory, "config.ini", err);
        if (status == WEFT_OK) status = weft_config_save_resolved(plan->run->config, path, err);
        if (status == WEFT_OK) status = weft_directory_sync(directory, err);
        if (status == WEFT_OK && self->before_manifest != NULL) status = self->before_manifest(self->context, err);
        if (status == WEFT_OK)
            status = weft_manifest_write(self->directory, self->record.state.step, self->parameters.layout->grid,
                                         self->roots, err);
    }
    return weft_process_group_agree(self->peers, status, err);
}

/* Adds the directory, and that earlier saves are intact, on the rank that has a message. */
static weft_status explain_failure(const weft_saving *self, weft_status status, weft_error *err) {
    if (err == NULL || err->text[0] == '\0') return status;
    (void)weft_error_prefix(err, "%s/%s could not be saved: ", self->parent, self->name);
    weft_words_append(err->text, sizeof err->text, "; earlier saves are unchanged");
    return status;
}

/* Saves into parent/name: rank 0 creates a temporary directory, all ranks write there, rank 0 renames it. */
static weft_status write_directory(weft_saving *self, weft_error *err) {
    const weft_process_group *peers = self->peers;
    weft_staging staging = {0};
    weft_status status = WEFT_OK;
    if (weft_process_group_is_rank_0(peers)) status = weft_staging_begin(&staging, self->parent, self->name, err);
    else weft_staging_name(&staging, self->parent, self->name);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers))
        status = weft_space_check(self->parent, self->name, estimate_bytes(self), err);
    self->directory = staging.path;
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = self->is_checkpoint ? write_checkpoint(self, err) : write_model(self, err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers)) status = weft_staging_commit(&staging, err);
    if (weft_process_group_is_rank_0(peers)) weft_staging_cancel(&staging);
    else weft_staging_forget(&staging);
    return weft_process_group_agree(peers, status, err);
}

weft_status weft_saving_run(weft_saving *self, weft_error *err) {
    weft_status status = WEFT_OK;
    self->roots = json_object();
    status = choose_masters(self, err);
    if (status == WEFT_OK) status = write_directory(self, err);
    json_decref(self->roots);
    self->roots = NULL;
    return status == WEFT_OK ? status : explain_failure(self, status, err);
}

weft_status weft_saving_open(weft_saving *out, const weft_engine *engine, const char *parent, const char *name,
                             const weft_text_files *files, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->engine = engine;
    out->peers = &engine->peers;
    switch (engine->plan.run->settings.checkpoint.dtype) {
    case WEFT_SAVE_FP32: out->dtype = WEFT_F32; break;
    case WEFT_SAVE_BF16: out->dtype = WEFT_BF16; break;
    case WEFT_SAVE_FP16: out->dtype = WEFT_F16; break;
    default: out->dtype = weft_plan_saves_base(&engine->plan) ? engine->stored_dtype : WEFT_F32; /* as PEFT does */
    }
    out->parameters = weft_engine_region(engine, WEFT_HOLD_PARAMETERS);
    for (int i = 0; i < engine->plan.n_states; i++) out->states[i] = weft_engine_region(engine, WEFT_HOLD_STATES + i);
    out->files = files;
    status = weft_path_join(out->parent, "", parent, err);
    if (status == WEFT_OK) status = weft_path_join(out->name, "", name, err);
    if (status != WEFT_OK) return status;
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "before %s/%s is saved: ", parent, name);
}

void weft_saving_note(weft_saving *self, const weft_checkpoint_state *state, const weft_identities *identities) {
    const weft_engine *engine = self->engine;
    self->is_checkpoint = true;
    self->record = (weft_record){.state = *state,
                                 .identities = *identities,
                                 .updates = engine->updates,
                                 .stored_dtype = engine->stored_dtype,
                                 .choices = engine->choices};
    if (weft_plan_scales(&engine->plan)) self->record.scale = engine->scale;
}

/* Runs a synchronous save, after weft_saving_open with status `opened`. */
static weft_status run_in_place(weft_saving *self, weft_status opened, weft_error *err) {
    const weft_status status = weft_process_group_agree(self->peers, opened, err);
    return status == WEFT_OK ? weft_saving_run(self, err) : explain_failure(self, status, err);
}

weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text_files *files, weft_error *err) {
    weft_saving self;
    char name[64];
    weft_status status = WEFT_OK;
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    status = weft_saving_open(&self, engine, directory, name, files, err);
    weft_saving_note(&self, state, identities);
    return run_in_place(&self, status, err);
}

weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text_files *files,
                            weft_error *err) {
    weft_saving self;
    const char *slash = strrchr(directory, '/'), *name = slash == NULL ? directory : slash + 1;
    char parent[WEFT_PATH_BYTES] = ".";
    if (name - directory >= WEFT_PATH_BYTES || *name == '\0')
        return weft_error_set(err, WEFT_E_USER, "%s: is no name of a directory for a model", directory);
    if (slash != NULL) (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - directory), directory);
    if (slash == directory) (void)strcpy(parent, "/");
    return run_in_place(&self, weft_saving_open(&self, engine, parent, name, files, err), err);
}
