/* host/model/weights_save.c: saves the region as files that transformers loads. Parameters are assigned to files in
 * declaration order. region_write.c writes the parameters of a file, rank 0 the other files. */
#include "model/weights_save.h"

#include "base/file.h"
#include "base/text.h"
#include "model/config_json.h"
#include "model/convert.h"
#include "model/region_write.h"
#include "model/weights.h"
#include "plugin/enter.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct additions {
    weft_json_change items[WEFT_JSON_CHANGES];
    char *texts[WEFT_JSON_CHANGES];
    size_t n;
    bool failed; /* out of memory */
} additions;

/* Adds a key unless the file has a value for it. null counts as absent: transformers 4 writes it after reading a file
 * of transformers 5. */
static void add_key(additions *self, const json_t *root, const char *key, const json_t *value) {
    const json_t *there = json_object_get(root, key);
    char *text = NULL;
    if (value == NULL || (there != NULL && !json_is_null(there))) return;
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    self->failed = self->failed || text == NULL;
    if (text == NULL) return;
    self->texts[self->n] = text;
    self->items[self->n].key = key;
    self->items[self->n++].value = text;
}

static const char *type_of(const json_t *rope) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    return type != NULL ? type : json_string_value(json_object_get(rope, "type"));
}

/* True if a longrope scaling can be reduced to the three members that transformers 4 requires for Phi-3, without losing
 * information. */
static bool is_three(const json_t *root, const json_t *scaling) {
    const json_t *original = json_object_get(scaling, "original_max_position_embeddings");
    const bool newer = json_object_get(scaling, "rope_type") != NULL, older = json_object_get(scaling, "type") != NULL;
    if (original != NULL && !json_equal(original, json_object_get(root, "original_max_position_embeddings")))
        return false;
    return json_object_size(scaling) == 2u + newer + older + (original != NULL) &&
           json_object_get(scaling, "short_factor") != NULL && json_object_get(scaling, "long_factor") != NULL;
}

/* Reconstructs rope_scaling of transformers 4; NULL for unscaled positions. */
static json_t *make_scaling(const json_t *root, const json_t *rope) {
    const char *type = type_of(rope);
    json_t *scaling = NULL;
    if (type == NULL || strcmp(type, "default") == 0) return NULL;
    scaling = json_copy((json_t *)(uintptr_t)rope);
    (void)json_object_del(scaling, "rope_theta");
    (void)json_object_del(scaling, "partial_rotary_factor");
    if (strcmp(type, "longrope") != 0 || !is_three(root, scaling)) return scaling;
    (void)json_object_set_new(scaling, "type", json_string("longrope"));
    (void)json_object_del(scaling, "rope_type");
    (void)json_object_del(scaling, "original_max_position_embeddings");
    return scaling;
}

static void add_rope(additions *self, const json_t *root) {
    const json_t *rope = json_object_get(root, "rope_parameters");
    const json_t *full = json_object_get(rope, "full_attention"), *sliding = json_object_get(rope, "sliding_attention");
    json_t *scaling = NULL;
    if (full != NULL) rope = full;
    scaling = make_scaling(root, rope);
    add_key(self, root, "rope_theta", json_object_get(rope, "rope_theta"));
    add_key(self, root, "partial_rotary_factor", json_object_get(rope, "partial_rotary_factor"));
    add_key(self, root, "rope_scaling", scaling);
    add_key(self, root, "rope_local_base_freq", json_object_get(sliding, "rope_theta"));
    json_decref(scaling);
}

char *weft_config_json_spelled(const char *text, size_t bytes, size_t *out_bytes) {
    json_t *root = NULL;
    const json_t *newer = NULL, *older = NULL;
    additions added = {.n = 0};
    char *out = NULL;
    (void)weft_json_parse(&root, text, bytes, 0, "", NULL);
    newer = json_object_get(root, "dtype");
    older = json_object_get(root, "torch_dtype");
    if (json_is_string(newer)) add_key(&added, root, "torch_dtype", newer);
    if (json_is_string(older)) add_key(&added, root, "dtype", older);
    if (json_is_object(json_object_get(root, "rope_parameters"))) add_rope(&added, root);
    if (!added.failed) out = weft_config_json_change(text, bytes, added.items, added.n, out_bytes);
    for (size_t i = 0; i < added.n; i++) free(added.texts[i]);
    json_decref(root);
    return out;
}

enum { GENERATION_LIMIT = 16 << 20 };

typedef struct save_job {
    const weft_region *region;
    int32_t dtype;
    bool trainable_only, masters_only;
    int32_t *shards; /* [n_parameters] file index of each parameter; -1: not saved */
    int32_t n_shards;
    const weft_roots *roots;
} save_job;

static weft_status no_memory_for_weights(const char *where, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory left to write the weights", where);
}

/* ---- one file ---- */

/* Lists the parameters of one shard for the writer. Returns their number. */
static int32_t list_shard(weft_tensor_spec *specs, int32_t *parameters, const save_job *job, int32_t shard) {
    const weft_declared *declared = job->region->declared;
    int32_t n = 0;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (job->shards[p] != shard) continue;
        specs[n] = job->masters_only ? weft_packed_state_spec(&declared->parameters[p], job->dtype)
                                     : weft_packed_spec(&declared->parameters[p], job->dtype);
        parameters[n++] = p;
    }
    return n;
}

static weft_status write_shard(const save_job *job, int32_t shard, const char *path, weft_error *err) {
    const size_t most = (size_t)job->region->declared->n_parameters;
    weft_tensor_spec *specs = calloc(most, sizeof *specs);
    int32_t *parameters = calloc(most, sizeof *parameters);
    weft_region_file file = {job->region, path, specs, parameters, 0};
    weft_status status = specs == NULL || parameters == NULL ? no_memory_for_weights(path, err) : WEFT_OK;
    status = weft_process_group_agree(job->region->peers, status, err);
    if (status == WEFT_OK) {
        file.n = list_shard(specs, parameters, job, shard);
        status = weft_region_write(&file, job->roots, err);
    }
    free(parameters);
    free(specs);
    return status;
}

/* ---- the files ---- */

/* Assigns parameters to files of at most shard_bytes of data; a larger parameter has its own file. */
static void deal_to_shards(save_job *job, int64_t shard_bytes) {
    const weft_declared *declared = job->region->declared;
    int64_t filled = 0;
    job->n_shards = 1;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        const int64_t bytes = weft_packed_file_bytes(parameter, job->dtype);
        job->shards[p] = -1;
        if (job->trainable_only && !parameter->trainable) continue;
        if (!job->masters_only && parameter->added) continue;
        if (job->masters_only && weft_parameter_is_packed(parameter)) continue;
        if (filled > 0 && filled > shard_bytes - bytes) {
            job->n_shards++;
            filled = 0;
        }
        filled += bytes;
        job->shards[p] = job->n_shards - 1;
    }
}

static void shard_name(char name[64], const save_job *job, int32_t shard) {
    if (job->n_shards == 1) (void)snprintf(name, 64, "model.safetensors");
    else (void)snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, job->n_shards);
}

/* Returns the index in the format of transformers; NULL: no memory. */
static char *index_text(const save_job *job) {
    const weft_declared *declared = job->region->declared;
    json_t *map = json_object(), *index = NULL;
    int64_t bytes = 0, numel = 0;
    char name[64], *text = NULL;
    bool good = map != NULL;
    for (int32_t p = 0; p < declared->n_parameters && good; p++) {
        if (job->shards[p] < 0) continue;
        numel += declared->parameters[p].numel;
        shard_name(name, job, job->shards[p]);
        good = json_object_set_new(map, declared->parameters[p].name, json_string(name)) == 0;
        bytes += weft_packed_file_bytes(&declared->parameters[p], job->dtype);
    }
    index = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)numel, "total_size",
                      (json_int_t)bytes, "weight_map", map);
    if (index != NULL && good) text = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(index);
    return text;
}

static weft_status put_file(const char *directory, const char *name, const char *text, size_t bytes, weft_error *err) {
    char *path = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&path, "%s/%s", directory, name) < 0) return no_memory_for_weights(directory, err);
    status = weft_file_replace(path, text, bytes, err);
    free(path);
    return status;
}

static weft_status write_index(const save_job *job, const char *directory, weft_error *err) {
    char *text = index_text(job);
    weft_status status = text == NULL ? no_memory_for_weights(directory, err) : WEFT_OK;
    if (status == WEFT_OK) status = put_file(directory, "model.safetensors.index.json", text, strlen(text), err);
    free(text);
    return status;
}

static weft_status write_shards(save_job *job, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t shard = 0; shard < job->n_shards && status == WEFT_OK; shard++) {
        char name[64], path[4096];
        shard_name(name, job, shard);
        if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
            return weft_error_set(err, WEFT_E_USER, "%s/%s: the path is longer than %zu bytes", directory, name,
                                  sizeof path - 1);
        status = write_shard(job, shard, path, err);
    }
    return status;
}

static weft_status write_config(const weft_declared *declared, const char *directory, int32_t dtype, weft_error *err) {
    size_t bytes = 0, spelled_bytes = 0;
    char *text = weft_config_json_with_dtype(declared->config_text, declared->config_bytes, dtype, &bytes);
    char *whole = text == NULL ? NULL : weft_config_json_with_head(declared, text, bytes, &bytes);
    char *spelled = whole == NULL ? NULL : weft_config_json_spelled(whole, bytes, &spelled_bytes);
    weft_status status = spelled == NULL ? no_memory_for_weights(directory, err) : WEFT_OK;
    if (status == WEFT_OK) status = put_file(directory, "config.json", spelled, spelled_bytes, err);
    free(spelled);
    free(whole);
    free(text);
    return status;
}

/* Sets the pad token that was added to the vocabulary, which generation uses for padding. */
static weft_status set_pad(const weft_declared *declared, char **text, size_t *bytes, const char *directory,
                           weft_error *err) {
    char pad[16], *changed = NULL;
    const weft_json_change change = {"pad_token_id", pad};
    if (declared->vocabulary.rows == 0 || declared->vocabulary.pad < 0) return WEFT_OK;
    (void)snprintf(pad, sizeof pad, "%d", (int)declared->vocabulary.pad);
    changed = weft_config_json_change(*text, *bytes, &change, 1, bytes);
    if (changed == NULL) return no_memory_for_weights(directory, err);
    free(*text);
    *text = changed;
    return WEFT_OK;
}

/* Copies generation_config.json from the directory of config.json, if it exists. */
static weft_status copy_generation(const weft_declared *declared, const char *directory, weft_error *err) {
    static const char name[] = "generation_config.json";
    const char *slash = strrchr(declared->config_path, '/');
    const int n = slash == NULL ? 0 : (int)(slash + 1 - declared->config_path);
    char *path = NULL, *text = NULL;
    size_t bytes = 0;
    bool is_there = false;
    weft_status status = WEFT_OK;
    if (asprintf(&path, "%.*s%s", n, declared->config_path, name) < 0) return no_memory_for_weights(directory, err);
    status = weft_file_exists(&is_there, path, err);
    if (status == WEFT_OK && is_there) {
        status = weft_text_read(&text, &bytes, path, GENERATION_LIMIT, err);
        if (status == WEFT_OK) status = set_pad(declared, &text, &bytes, directory, err);
        if (status == WEFT_OK) status = put_file(directory, name, text, bytes, err);
    }
    free(text);
    free(path);
    return status;
}

/* ---- save ---- */

/* The caller sets source and type in `job`; this function sets the other fields. */
static weft_status job_create(save_job *job, int64_t shard_bytes, const char *where, weft_error *err) {
    const weft_region *region = job->region;
    weft_status status = WEFT_OK;
    job->shards = calloc((size_t)region->declared->n_parameters, sizeof *job->shards);
    if (job->shards == NULL) status = no_memory_for_weights(where, err);
    else deal_to_shards(job, shard_bytes);
    if (status == WEFT_OK) { /* before the host reads the device's memory */
        WEFT_PLUGIN_CALL(status, region->kernels, synchronize, err, region->device, NULL);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "before the weights are saved in %s: ", where);
    }
    return weft_process_group_agree(region->peers, status, err);
}

/* Writes the text files, on one rank. */
static weft_status write_texts(const save_job *job, const char *directory, weft_error *err) {
    const weft_region *region = job->region;
    weft_status status = WEFT_OK;
    if (weft_process_group_is_rank_0(region->peers)) {
        if (job->n_shards > 1) status = write_index(job, directory, err);
        if (status == WEFT_OK) status = write_config(region->declared, directory, job->dtype, err);
        if (status == WEFT_OK) status = copy_generation(region->declared, directory, err);
    }
    return weft_process_group_agree(region->peers, status, err);
}

weft_status weft_weights_save(const weft_region *region, const char *directory, int32_t dtype, int64_t shard_bytes,
                              const weft_roots *roots, weft_error *err) {
    save_job job = {.region = region, .dtype = dtype, .roots = roots};
    weft_status status = WEFT_OK;
    if (dtype != WEFT_F32 && dtype != WEFT_BF16 && dtype != WEFT_F16)
        return weft_error_set(err, WEFT_E_HOST, "weights are saved as fp32, bf16 or fp16, not as %s",
                              weft_dtype_name(dtype));
    status = job_create(&job, shard_bytes, directory, err);
    if (status == WEFT_OK) status = write_shards(&job, directory, err);
    if (status == WEFT_OK) status = write_texts(&job, directory, err);
    free(job.shards);
    return status;
}

weft_status weft_weights_save_file(const weft_region *region, const char *path, bool trainable_only,
                                   const weft_roots *roots, weft_error *err) {
    save_job job = {.region = region,
                    .dtype = region->dtype == 0 ? WEFT_F32 : region->dtype,
                    .trainable_only = trainable_only,
                    .masters_only = true,
                    .roots = roots};
    weft_status status = job_create(&job, INT64_MAX, path, err);
    if (status == WEFT_OK) status = write_shard(&job, 0, path, err);
    free(job.shards);
    return status;
}
