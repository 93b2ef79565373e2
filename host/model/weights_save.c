/* host/model/weights_save.c: saves the region as files that transformers loads. Parameters are assigned to files in
 * declaration order. region_write.c writes the parameters of a file, rank 0 the other files. */
#include "model/weights.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_json.h"
#include "model/convert.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Adds a key at the front unless the file has a value for it. null counts as absent: transformers 4 writes it after
 * reading a file of transformers 5. */
static weft_status add_key(char **text, size_t *bytes, const json_t *root, const char *key, const json_t *value,
                           weft_error *err) {
    const json_t *there = json_object_get(root, key);
    char *dumped = NULL;
    weft_status status = WEFT_OK;
    if (value == NULL || (there != NULL && !json_is_null(there))) return WEFT_OK;
    dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (dumped == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the value of %s", key);
    status = weft_config_json_change(text, bytes, &(weft_json_change){key, dumped}, 1, err);
    free(dumped);
    return status;
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
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    json_t *scaling = NULL;
    if (type == NULL) type = json_string_value(json_object_get(rope, "type"));
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

weft_status weft_config_json_add_spellings(char **text, size_t *bytes, weft_error *err) {
    json_t *root = NULL, *scaling = NULL;
    const json_t *newer = NULL, *older = NULL, *rope = NULL, *full = NULL, *sliding = NULL;
    weft_status status = WEFT_OK;
    (void)weft_json_parse(&root, *text, *bytes, 0, "", NULL);
    newer = json_object_get(root, "dtype");
    older = json_object_get(root, "torch_dtype");
    rope = json_object_get(root, "rope_parameters");
    full = json_object_get(rope, "full_attention");
    sliding = json_object_get(rope, "sliding_attention");
    if (full != NULL) rope = full;
    if (json_is_object(rope)) scaling = make_scaling(root, rope);
    /* Each key is added at the front, so the first one in the file is added last. */
    const struct {
        const char *key;
        const json_t *value;
    } keys[] = {{"rope_local_base_freq", json_object_get(sliding, "rope_theta")},
                {"rope_scaling", scaling},
                {"partial_rotary_factor", json_object_get(rope, "partial_rotary_factor")},
                {"rope_theta", json_object_get(rope, "rope_theta")},
                {"dtype", json_is_string(older) ? older : NULL},
                {"torch_dtype", json_is_string(newer) ? newer : NULL}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == WEFT_OK; i++)
        status = add_key(text, bytes, root, keys[i].key, keys[i].value, err);
    json_decref(scaling);
    json_decref(root);
    return status;
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

static weft_status write_shard(const save_job *job, int32_t shard, const char *path, weft_error *err) {
    const weft_declared *declared = job->region->declared;
    weft_tensor_spec *specs = weft_alloc(declared->n_parameters, sizeof *specs);
    int32_t *parameters = weft_alloc(declared->n_parameters, sizeof *parameters);
    weft_region_file file = {job->region, path, specs, parameters, 0};
    weft_status status = WEFT_OK;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (job->shards[p] != shard) continue;
        specs[file.n] = job->masters_only ? weft_packed_state_spec(&declared->parameters[p], job->dtype)
                                          : weft_packed_spec(&declared->parameters[p], job->dtype);
        parameters[file.n++] = p;
    }
    status = weft_region_write(&file, job->roots, err);
    free(parameters);
    free(specs);
    return status;
}

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

/* Writes the index in the format of transformers. */
static weft_status write_index(const save_job *job, const char *directory, weft_error *err) {
    const weft_declared *declared = job->region->declared;
    json_t *map = json_object(), *index = NULL;
    int64_t bytes = 0, numel = 0;
    char name[64], path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, "model.safetensors.index.json", err);
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (job->shards[p] < 0) continue;
        numel += declared->parameters[p].numel;
        shard_name(name, job, job->shards[p]);
        (void)json_object_set_new(map, declared->parameters[p].name, json_string(name));
        bytes += weft_packed_file_bytes(&declared->parameters[p], job->dtype);
    }
    index = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (json_int_t)numel, "total_size",
                      (json_int_t)bytes, "weight_map", map);
    if (status == WEFT_OK) status = weft_file_write_json(path, index, JSON_INDENT(2) | JSON_SORT_KEYS, err);
    json_decref(index);
    return status;
}

static weft_status write_config(const weft_declared *declared, const char *directory, int32_t dtype, weft_error *err) {
    char path[WEFT_PATH_BYTES], *text = strdup(declared->config_text);
    size_t bytes = declared->config_bytes;
    weft_status status = weft_path_join(path, directory, "config.json", err);
    if (status == WEFT_OK && text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for it", path);
    if (status == WEFT_OK) status = weft_config_json_set_dtype(&text, &bytes, dtype, err);
    if (status == WEFT_OK) status = weft_config_json_set_head(declared, &text, &bytes, err);
    if (status == WEFT_OK) status = weft_config_json_add_spellings(&text, &bytes, err);
    if (status == WEFT_OK) status = weft_file_replace(path, text, bytes, err);
    free(text);
    return status;
}

/* Copies generation_config.json from the directory of config.json, if it exists, with the pad token that was added to
 * the vocabulary. */
static weft_status copy_generation(const weft_declared *declared, const char *directory, weft_error *err) {
    static const char name[] = "generation_config.json";
    const char *slash = strrchr(declared->config_path, '/');
    const int n = slash == NULL ? 0 : (int)(slash + 1 - declared->config_path);
    char *from = weft_text_of("%.*s%s", n, declared->config_path, name), to[WEFT_PATH_BYTES], pad[16], *text = NULL;
    const weft_json_change change = {"pad_token_id", pad};
    size_t bytes = 0;
    bool is_there = false;
    weft_status status = weft_path_join(to, directory, name, err);
    (void)snprintf(pad, sizeof pad, "%d", (int)declared->vocabulary.pad);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, from, err);
    if (status == WEFT_OK && is_there) {
        status = weft_text_read(&text, &bytes, from, GENERATION_LIMIT, err);
        if (status == WEFT_OK && declared->vocabulary.rows > 0 && declared->vocabulary.pad >= 0)
            status = weft_config_json_change(&text, &bytes, &change, 1, err);
        if (status == WEFT_OK) status = weft_file_replace(to, text, bytes, err);
    }
    free(text);
    free(from);
    return status;
}

/* The caller sets source and type in `job`; this function sets the other fields. */
static weft_status job_create(save_job *job, int64_t shard_bytes, const char *where, weft_error *err) {
    const weft_region *region = job->region;
    weft_status status = WEFT_OK;
    job->shards = weft_alloc(region->declared->n_parameters, sizeof *job->shards);
    deal_to_shards(job, shard_bytes);
    WEFT_PLUGIN_CALL(status, region->kernels, synchronize, err, region->device, NULL); /* before the host reads */
    if (status != WEFT_OK) (void)weft_error_prefix(err, "before the weights are saved in %s: ", where);
    return weft_process_group_agree(region->peers, status, err);
}

weft_status weft_weights_save(const weft_region *region, const char *directory, int32_t dtype, int64_t shard_bytes,
                              const weft_roots *roots, weft_error *err) {
    save_job job = {.region = region, .dtype = dtype, .roots = roots};
    const bool writes = weft_process_group_is_rank_0(region->peers); /* the files other than tensors */
    weft_status status = WEFT_OK;
    if (!weft_is_convertible(dtype))
        return weft_error_set(err, WEFT_E_HOST, "weights are saved as fp32, bf16 or fp16, not as %s",
                              weft_dtype_name(dtype));
    status = job_create(&job, shard_bytes, directory, err);
    for (int32_t shard = 0; shard < job.n_shards && status == WEFT_OK; shard++) {
        char name[64], path[WEFT_PATH_BYTES];
        shard_name(name, &job, shard);
        status = weft_path_join(path, directory, name, err);
        if (status == WEFT_OK) status = write_shard(&job, shard, path, err);
    }
    if (status == WEFT_OK) {
        if (writes && job.n_shards > 1) status = write_index(&job, directory, err);
        if (writes && status == WEFT_OK) status = write_config(region->declared, directory, dtype, err);
        if (writes && status == WEFT_OK) status = copy_generation(region->declared, directory, err);
        status = weft_process_group_agree(region->peers, status, err);
    }
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
