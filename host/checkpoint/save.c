/* host/checkpoint/save.c: writes a checkpoint, or the model alone. The device is read in bounded pieces; nothing but
 * the final rename changes what a reader sees. */
#include "checkpoint/checkpoint.h"

#include "checkpoint/manifest.h"
#include "checkpoint/path.h"
#include "checkpoint/record.h"
#include "checkpoint/staging.h"
#include "model/convert.h"
#include "model/region.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "report/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- types ---- */

static int32_t saved_dtype(const weft_engine *engine) {
    switch (engine->run->settings.checkpoint.dtype) {
    case WEFT_SAVE_FP32: return WEFT_F32;
    case WEFT_SAVE_BF16: return WEFT_BF16;
    case WEFT_SAVE_FP16: return WEFT_F16;
    default: return engine->stored_dtype;
    }
}

/* True if numbers come back from the type as they were. scratch: WEFT_REGION_PIECE floats. */
static bool survives(const float *values, int64_t n, int32_t dtype, float *scratch) {
    enum { PIECE = 4096 };
    uint16_t narrow[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = n - at < PIECE ? n - at : PIECE;
        (void)weft_convert(narrow, dtype, values + at, WEFT_F32, m);
        (void)weft_convert(scratch, WEFT_F32, narrow, dtype, m);
        if (memcmp(scratch, values + at, (size_t)m * sizeof *values) != 0) return false;
    }
    return true;
}

/* Trained parameters always lose bits in a narrower type. Frozen ones do not where they came from files of that type.
 */
static weft_status frozen_survive(const weft_engine *engine, int32_t dtype, bool *out, weft_error *err) {
    const weft_region region = weft_engine_parameters(engine);
    float *staging = malloc(2 * WEFT_REGION_PIECE * sizeof *staging);
    weft_status status = WEFT_OK;
    *out = true;
    if (staging == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a piece of the weights");
    for (int32_t i = 0; i < engine->declared->n_parameters && *out; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        for (int64_t first = 0; !p->trainable && first < p->numel && *out && status == WEFT_OK;
             first += WEFT_REGION_PIECE) {
            const int64_t n = p->numel - first < WEFT_REGION_PIECE ? p->numel - first : WEFT_REGION_PIECE;
            const float *values = NULL;
            status = weft_region_read(&region, i, first, n, staging, &values, err);
            if (status == WEFT_OK) *out = survives(values, n, dtype, staging + WEFT_REGION_PIECE);
        }
    }
    free(staging);
    return status;
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
static int64_t model_bytes(const weft_engine *engine, int32_t dtype, const weft_text *text) {
    int64_t bytes = weft_declared_numel(engine->declared, false) * weft_dtype_bytes(dtype);
    bytes += bytes / WEFT_SHARD_BYTES * BLOCK_BYTES; /* full shards */
    bytes += TENSOR_BYTES * (int64_t)engine->declared->n_parameters + (int64_t)engine->declared->config_bytes;
    bytes += 4 * BLOCK_BYTES; /* directory, config.json, index, last shard */
    for (uint32_t i = 0; text != NULL && text->plugin->file != NULL; i++) {
        const char *name = text->plugin->file(text->tokenizer, i);
        if (name == NULL) break;
        bytes += file_size(text->directory, name) + BLOCK_BYTES;
    }
    return bytes;
}

static int64_t state_bytes(const weft_engine *engine, weft_masters masters) {
    const int64_t trained = 4 * weft_declared_numel(engine->declared, true);
    const int64_t files = engine->n_states + 2; /* masters may be one; run.json and config.ini */
    int64_t bytes = trained * engine->n_states + TENSOR_BYTES * files * (int64_t)engine->declared->n_parameters;
    bytes += files * BLOCK_BYTES + RECORD_BYTES;
    if (masters == WEFT_MASTERS_TRAINABLE) bytes += trained;
    if (masters == WEFT_MASTERS_ALL) bytes += 4 * weft_declared_numel(engine->declared, false);
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

static weft_status write_model(const weft_engine *engine, const char *directory, int32_t dtype, const weft_text *text,
                               weft_error *err) {
    const weft_region region = weft_engine_parameters(engine);
    const weft_status status = weft_weights_save(&region, directory, dtype, WEFT_SHARD_BYTES, err);
    return status == WEFT_OK ? copy_text(directory, text, err) : status;
}

/* ---- state/ ---- */

/* A file of state/, by the name of what it holds. */
static weft_status write_region(const weft_region *region, const char *directory, const char *name, bool trainable_only,
                                weft_error *err) {
    char path[WEFT_PATH_BYTES], file[256];
    weft_status status = WEFT_OK;
    (void)snprintf(file, sizeof file, "%s.safetensors", name);
    status = weft_path_join(path, directory, file, err);
    if (status != WEFT_OK) return status;
    return weft_weights_save_file(region, path, trainable_only, err);
}

static weft_status check_slot(const weft_engine *engine, const char *name, weft_error *err) {
    if (name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strcmp(name, "master") != 0 &&
        strlen(name) < 200)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "optimizer %s: a state called '%s' cannot be saved; a plain name other than "
                          "'master' is needed",
                          engine->run->parts[WEFT_PART_OPTIMIZER].loaded->plugin->id, name);
}

static weft_status write_regions(const weft_engine *engine, const char *directory, weft_masters masters,
                                 weft_error *err) {
    const weft_region parameters = weft_engine_parameters(engine);
    weft_status status = WEFT_OK;
    if (masters != WEFT_MASTERS_NONE)
        status = write_region(&parameters, directory, "master", masters == WEFT_MASTERS_TRAINABLE, err);
    for (int64_t i = 0; i < engine->n_states && status == WEFT_OK; i++) {
        const weft_region region = weft_engine_state(engine, i);
        status = check_slot(engine, engine->states[i].name, err);
        if (status == WEFT_OK) status = write_region(&region, directory, engine->states[i].name, true, err);
    }
    return status;
}

static weft_status write_state(const weft_engine *engine, const char *checkpoint, const weft_record *record,
                               weft_error *err) {
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(directory, checkpoint, "state", err);
    if (status != WEFT_OK) return status;
    if (mkdir(directory, 0777) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", directory, strerror(errno));
    status = write_regions(engine, directory, record->masters, err);
    if (status == WEFT_OK) status = weft_path_join(path, directory, "run.json", err);
    if (status == WEFT_OK) status = weft_record_save(record, path, err);
    if (status == WEFT_OK) status = weft_path_join(path, directory, "config.ini", err);
    if (status == WEFT_OK) status = weft_config_save_resolved(engine->run->config, path, err);
    return status == WEFT_OK ? weft_directory_sync(directory, err) : status;
}

/* ---- the whole ---- */

static weft_status write_checkpoint(const weft_engine *engine, const char *directory, int32_t dtype,
                                    const weft_record *record, const weft_text *text, weft_error *err) {
    weft_status status = write_model(engine, directory, dtype, text, err);
    if (status == WEFT_OK) status = write_state(engine, directory, record, err);
    if (status == WEFT_OK) status = weft_manifest_write(directory, record->state.step, engine->layout->grid, err);
    return status;
}

/* Says what failed and that nothing is lost. */
static weft_status explain(weft_error *err, weft_status status, const char *parent, const char *name) {
    size_t n = 0;
    if (err == NULL) return status;
    (void)weft_error_prefix(err, "%s/%s could not be saved: ", parent, name);
    n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof err->text - n, "; what was saved before is as it was");
    return status;
}

weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text *text, weft_error *err) {
    const int32_t dtype = saved_dtype(engine);
    weft_record record = {
        .state = *state, .identities = *identities, .updates = engine->updates, .stored_dtype = engine->stored_dtype};
    weft_staging staging = {0};
    char name[64];
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    if (status == WEFT_OK) status = choose_masters(engine, dtype, &record.masters, err);
    if (status == WEFT_OK) status = weft_staging_begin(&staging, directory, name, err);
    if (status == WEFT_OK)
        status = weft_space_check(directory, name,
                                  model_bytes(engine, dtype, text) + state_bytes(engine, record.masters), err);
    if (status == WEFT_OK) status = write_checkpoint(engine, staging.path, dtype, &record, text, err);
    if (status == WEFT_OK) status = weft_staging_commit(&staging, err);
    weft_staging_cancel(&staging);
    return status == WEFT_OK ? status : explain(err, status, directory, name);
}

/* The directory that holds `directory`, and the name that it has there. */
static weft_status split(char parent[WEFT_PATH_BYTES], const char **name, const char *directory, weft_error *err) {
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
    const int32_t dtype = saved_dtype(engine);
    const char *name = NULL;
    char parent[WEFT_PATH_BYTES];
    weft_staging staging = {0};
    weft_status status = split(parent, &name, directory, err);
    if (status != WEFT_OK) return status;
    WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    if (status == WEFT_OK) status = weft_staging_begin(&staging, parent, name, err);
    if (status == WEFT_OK) status = weft_space_check(parent, name, model_bytes(engine, dtype, text), err);
    if (status == WEFT_OK) status = write_model(engine, staging.path, dtype, text, err);
    if (status == WEFT_OK) status = weft_staging_commit(&staging, err);
    weft_staging_cancel(&staging);
    return status == WEFT_OK ? status : explain(err, status, parent, name);
}
