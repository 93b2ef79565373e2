/* host/run/save.c: writes a checkpoint, during training too, or the model only. Each rank writes its shards directly
 * into the final files; rank 0 creates them, writes the other files, the manifest last, and renames the directory. */
#include "run/checkpoint.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/stream_sync.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "run/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* Which files are saved, from which regions, among which ranks. A synchronous save reads the engine's regions and uses
 * its process group; an asynchronous one reads copies and uses a relay: the same code writes the same bytes. The device
 * is used through the regions only. */
typedef struct saving {
    const weft_engine *engine; /* for its plan and configuration, which are constant */
    const weft_process_group *peers;
    weft_region parameters, states[WEFT_MAX_STATES];
    const weft_text_files *files;                                   /* of the tokenizer; NULL: none */
    int32_t dtype;                                                  /* of the weights */
    char parent[WEFT_PATH_BYTES], name[WEFT_PATH_BYTES];            /* of the final directory */
    bool is_checkpoint;                                             /* with state/ and manifest, and a record */
    weft_record record;                                             /* its pointers are borrowed */
    weft_status (*before_manifest)(void *context, weft_error *err); /* (optional) on rank 0 */
    void *context;                                                  /* of it */

    const char *directory; /* the temporary one */
    json_t *roots;         /* on rank 0: the roots of tensors, for the manifest */
} saving;

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
static weft_status choose_masters(saving *self, weft_error *err) {
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
static int64_t estimate_bytes(const saving *self) {
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
    const saving *self = context;
    const char *name = path + strlen(self->directory) + 1;
    json_t *file = json_object_get(self->roots, name);
    if (file == NULL) {
        file = json_object();
        (void)json_object_set_new(self->roots, name, file);
    }
    if (json_object_set_new(file, tensor, json_string(hex)) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%s: no hash can be noted of '%s'", path, tensor);
}

static weft_status write_model(saving *self, weft_error *err) {
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
static weft_status write_region(saving *self, const weft_region *region, const char *name, bool trainable_only,
                                weft_error *err) {
    const weft_roots roots = {note_root, self};
    char path[WEFT_PATH_BYTES], file[256];
    weft_status status = WEFT_OK;
    (void)snprintf(file, sizeof file, "state/%s.safetensors", name);
    status = weft_path_join(path, self->directory, file, err);
    return status == WEFT_OK ? weft_weights_save_file(region, path, trainable_only, &roots, err) : status;
}

/* Rank 0 writes the other files after all ranks' shards, the manifest last. */
static weft_status write_checkpoint(saving *self, weft_error *err) {
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
static weft_status explain_failure(const saving *self, weft_status status, weft_error *err) {
    if (err == NULL || err->text[0] == '\0') return status;
    (void)weft_error_prefix(err, "%s/%s could not be saved: ", self->parent, self->name);
    weft_words_append(err->text, sizeof err->text, "; earlier saves are unchanged");
    return status;
}

/* Saves into parent/name: rank 0 creates a temporary directory, all ranks write there, rank 0 renames it. */
static weft_status write_directory(saving *self, weft_error *err) {
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

/* Writes all files. [collective] */
static weft_status run_saving(saving *self, weft_error *err) {
    weft_status status = WEFT_OK;
    self->roots = json_object();
    status = choose_masters(self, err);
    if (status == WEFT_OK) status = write_directory(self, err);
    json_decref(self->roots);
    self->roots = NULL;
    return status == WEFT_OK ? status : explain_failure(self, status, err);
}

/* Describes a synchronous save of the engine; files may be NULL. [main] */
static weft_status open_saving(saving *out, const weft_engine *engine, const char *parent, const char *name,
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

/* Describes a checkpoint of this state; the identities' content must outlive it. */
static weft_status open_checkpoint(saving *out, const weft_engine *engine, const char *directory,
                                   const weft_checkpoint_state *state, const weft_identities *identities,
                                   const weft_text_files *files, weft_error *err) {
    char name[64];
    weft_status status = WEFT_OK;
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    status = open_saving(out, engine, directory, name, files, err);
    out->is_checkpoint = true;
    out->record = (weft_record){.state = *state,
                                .identities = *identities,
                                .updates = engine->updates,
                                .stored_dtype = engine->stored_dtype,
                                .choices = engine->choices};
    if (weft_plan_scales(&engine->plan)) out->record.scale = engine->scale;
    return status;
}

/* Runs a synchronous save, after open_saving with status `opened`. */
static weft_status run_in_place(saving *self, weft_status opened, weft_error *err) {
    const weft_status status = weft_process_group_agree(self->peers, opened, err);
    return status == WEFT_OK ? run_saving(self, err) : explain_failure(self, status, err);
}

weft_status weft_checkpoint_save(const weft_engine *engine, const char *directory, const weft_checkpoint_state *state,
                                 const weft_identities *identities, const weft_text_files *files, weft_error *err) {
    saving self;
    return run_in_place(&self, open_checkpoint(&self, engine, directory, state, identities, files, err), err);
}

weft_status weft_model_save(const weft_engine *engine, const char *directory, const weft_text_files *files,
                            weft_error *err) {
    saving self;
    const char *slash = strrchr(directory, '/'), *name = slash == NULL ? directory : slash + 1;
    char parent[WEFT_PATH_BYTES] = ".";
    if (name - directory >= WEFT_PATH_BYTES || *name == '\0')
        return weft_error_set(err, WEFT_E_USER, "%s: is no name of a directory for a model", directory);
    if (slash != NULL) (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - directory), directory);
    if (slash == directory) (void)strcpy(parent, "/");
    return run_in_place(&self, open_saving(&self, engine, parent, name, files, err), err);
}

/* ---- checkpoints that are written during training ---- */

typedef enum request_kind {
    REQUEST_NONE = 0,
    REQUEST_GATHER = 1,
    REQUEST_SHARE = 2,
    REQUEST_SWAP = 3,
    REQUEST_END = 4 /* the thread sends no more requests */
} request_kind;

typedef struct relay_request {
    request_kind kind;
    int32_t *numbers, mine, from; /* as in weft_process_group */
    void *bytes;
    int64_t n;
    const weft_message_buffer *in, *out;
    weft_status status;
    weft_error *err;
} relay_request;

/* The copy of one region. */
typedef struct part {
    const char *copy;
    int64_t bytes;    /* of the copy: the region's first bytes */
    const char *live; /* the region itself, for bytes after the copy; NULL: not visible to the host */
} part;

struct weft_async_checkpoint {
    weft_engine *engine;
    weft_stream_sync order; /* for transfers into the copy */
    weft_slot_ref slot;     /* a device buffer, if the host sees the device's memory */
    char *memory;           /* the host's address of the copy */
    part parts[1 + WEFT_MAX_STATES];

    weft_process_group relay; /* the thread's process group */
    int32_t *kinds;           /* [world] request kinds of all ranks */
    pthread_mutex_t lock;     /* of the request and `closed` */
    pthread_cond_t is_requested, is_answered;
    bool closed; /* all further requests fail */
    relay_request request;

    saving save;
    pthread_t thread;
    bool runs; /* the thread is to be joined */
    double begin, seconds;
    weft_status status; /* of the thread, as its message */
    weft_error err;
};

/* ---- the copy: a device of host memory, for its regions ---- */

static void *view_of_part(weft_device *device, weft_ref ref) {
    const part *of = (const part *)(const void *)device;
    const char *at = ref.offset < of->bytes ? of->copy : of->live;
    return (void *)(uintptr_t)(at + ref.offset);
}

static weft_status nothing_is_queued(weft_device *device, weft_stream *stream, weft_error *err) {
    (void)device;
    (void)stream;
    (void)err;
    return WEFT_OK;
}

static const weft_device_plugin host_memory = {
    .struct_size = (uint32_t)sizeof host_memory,
    .host_view = view_of_part,
    .synchronize = nothing_is_queued,
};

/* Part 0 is of the parameters, part 1 + i of state i. */
static int hold_of(int64_t index) {
    return index == 0 ? WEFT_HOLD_PARAMETERS : WEFT_HOLD_STATES + (int)index - 1;
}

/* A region of the copy, which the thread reads without the device. Other ranks' shards are read through the relay. */
static weft_region copied_region(const weft_async_checkpoint *self, int64_t index) {
    weft_region region = weft_engine_region(self->engine, hold_of(index));
    region.kernels = &host_memory;
    region.device = (weft_device *)(uintptr_t)&self->parts[index];
    region.ref = (weft_ref){NULL, 0};
    region.peers = &self->relay;
    return region;
}

static weft_status allocate_copy(weft_async_checkpoint *self, weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_plan *plan = &engine->plan;
    void *memory = NULL;
    weft_status status = WEFT_OK;
    if (plan->visible) {
        status = weft_account_alloc(&engine->account, &self->slot, plan->bytes.snapshot, WEFT_ACCOUNT_SNAPSHOT, err);
        if (status == WEFT_OK && plan->bytes.snapshot > 0)
            memory = weft_device_view(engine->kernels, engine->device, self->slot.ref);
    } else {
        status = weft_stream_sync_alloc(&self->order, &memory, plan->bytes.snapshot, err);
    }
    if (status != WEFT_OK) return weft_error_prefix(err, "memory for asynchronous saves ([checkpoint] async): ");
    self->memory = memory;
    for (int64_t i = 0, at = 0; i <= plan->n_states; i++) {
        part *one = &self->parts[i];
        one->bytes = i == 0 ? weft_save_place_parameters(plan) : plan->holds[hold_of(i)]->bytes;
        one->copy = self->memory + at;
        if (plan->visible)
            one->live = weft_device_view(engine->kernels, engine->device, weft_engine_region(engine, hold_of(i)).ref);
        at += weft_buffer_part(one->bytes);
    }
    return WEFT_OK;
}

/* ---- the relay: the thread's process group
 *
 * Only the main thread may use the communicator. A request of the thread waits until the main threads of all ranks
 * serve it, after each step. The threads of all ranks send the same requests in the same order, as main threads would.
 * A single rank has no requests: serving only polls the thread. ---- */

static weft_status send_request(weft_async_checkpoint *self, relay_request request) {
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request = request;
    (void)pthread_cond_signal(&self->is_requested);
    while (self->request.kind != REQUEST_NONE && request.kind != REQUEST_END && !self->closed)
        (void)pthread_cond_wait(&self->is_answered, &self->lock);
    status = self->request.status;
    if (self->request.kind != REQUEST_NONE && request.kind != REQUEST_END)
        status = weft_error_set(request.err, WEFT_E_PEER, "the run has ended while ranks were exchanging data");
    if (request.kind != REQUEST_END) self->request.kind = REQUEST_NONE;
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

static weft_status request_gather(void *context, int32_t *out, int32_t mine, weft_error *err) {
    return send_request(context, (relay_request){.kind = REQUEST_GATHER, .numbers = out, .mine = mine, .err = err});
}

static weft_status request_share(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    return send_request(context,
                        (relay_request){.kind = REQUEST_SHARE, .bytes = bytes, .n = n, .from = from, .err = err});
}

static weft_status request_swap(void *context, const weft_message_buffer *in, const weft_message_buffer *out,
                                weft_error *err) {
    return send_request(context, (relay_request){.kind = REQUEST_SWAP, .in = in, .out = out, .err = err});
}

/* How long the main thread waits for a request, in nanoseconds: requests often follow one another immediately. */
enum { AT_ONCE = 0, SHORTLY = 2000000, FOREVER = -1 };

static request_kind await_request(weft_async_checkpoint *self, int64_t nanoseconds) {
    struct timespec until;
    request_kind kind = REQUEST_NONE;
    int code = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + nanoseconds) / 1000000000;
    until.tv_nsec = (until.tv_nsec + nanoseconds) % 1000000000;
    (void)pthread_mutex_lock(&self->lock);
    while (self->request.kind == REQUEST_NONE && code != ETIMEDOUT)
        code = nanoseconds == FOREVER
                   ? pthread_cond_wait(&self->is_requested, &self->lock)
                   : pthread_cond_clockwait(&self->is_requested, &self->lock, CLOCK_MONOTONIC, &until);
    kind = self->request.kind;
    (void)pthread_mutex_unlock(&self->lock);
    return kind;
}

/* Serves the request while the thread waits; both get a failure. */
static weft_status answer(weft_async_checkpoint *self, request_kind kind, weft_error *err) {
    const weft_process_group *peers = &self->engine->peers;
    const relay_request *r = &self->request;
    weft_error failure = WEFT_ERROR_INIT;
    const weft_status status = kind == REQUEST_GATHER  ? peers->gather(peers->context, r->numbers, r->mine, &failure)
                               : kind == REQUEST_SHARE ? peers->share(peers->context, r->bytes, r->n, r->from, &failure)
                                                       : peers->swap(peers->context, r->in, r->out, &failure);
    if (status != WEFT_OK && r->err != NULL) *r->err = failure;
    if (status != WEFT_OK && err != NULL) *err = failure;
    (void)pthread_mutex_lock(&self->lock);
    self->request.status = status;
    self->request.kind = REQUEST_NONE;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

/* Gets the request that all ranks' threads have sent; NONE: a thread has not sent one yet. */
static weft_status get_common_request(weft_async_checkpoint *self, request_kind *kind, int64_t nanoseconds,
                                      weft_error *err) {
    const weft_process_group *peers = &self->engine->peers;
    weft_status status = WEFT_OK;
    bool same = true;
    *kind = await_request(self, nanoseconds);
    if (weft_process_group_is_single(peers)) return WEFT_OK;
    status = peers->gather(peers->context, self->kinds, (int32_t)*kind, err);
    for (int32_t r = 0; r < peers->world && status == WEFT_OK; r++) {
        if (self->kinds[r] == REQUEST_NONE) *kind = REQUEST_NONE;
        same = same && self->kinds[r] == self->kinds[0];
    }
    if (status != WEFT_OK || same || *kind == REQUEST_NONE) return status;
    return weft_error_set(err, WEFT_E_HOST, "the ranks send different requests during an asynchronous save");
}

/* ---- the checkpoint ---- */

weft_status weft_async_checkpoint_create(weft_async_checkpoint **out, weft_engine *engine, weft_error *err) {
    const weft_process_group *peers = &engine->peers;
    const int32_t world = weft_process_group_is_single(peers) ? 1 : peers->world;
    weft_async_checkpoint *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    self->engine = engine;
    self->relay = (weft_process_group){.world = world,
                                       .rank = world == 1 ? 0 : peers->rank,
                                       .context = self,
                                       .codes = weft_alloc(world, sizeof *self->relay.codes),
                                       .gather = request_gather,
                                       .share = request_share,
                                       .swap = request_swap};
    self->kinds = weft_alloc(world, sizeof *self->kinds);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->is_requested, NULL);
    (void)pthread_cond_init(&self->is_answered, NULL);
    status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, 1, err);
    if (status == WEFT_OK) status = allocate_copy(self, err);
    if (status == WEFT_OK) *out = self;
    else weft_async_checkpoint_destroy(self);
    return status;
}

static void *write_copy(void *argument) {
    const weft_call_record now = {.what = "saving a checkpoint during training"};
    weft_async_checkpoint *self = argument;
    (void)weft_crash_set_call(now);
    self->status = run_saving(&self->save, &self->err);
    self->seconds = weft_clock_seconds() - self->begin;
    (void)send_request(self, (relay_request){.kind = REQUEST_END});
    return NULL;
}

static void join_thread(weft_async_checkpoint *self) {
    if (self->runs) (void)pthread_join(self->thread, NULL);
    self->runs = false;
}

static void abort_save(weft_async_checkpoint *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->closed = true;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
    join_thread(self);
}

weft_status weft_async_checkpoint_begin(weft_async_checkpoint *self, const char *directory,
                                        const weft_checkpoint_state *state, const weft_identities *identities,
                                        const weft_text_files *files,
                                        weft_status (*first)(void *context, weft_error *err), void *context,
                                        weft_error *err) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const weft_engine *engine = self->engine;
    saving *save = &self->save;
    sigset_t blocked, before;
    int code = 0;
    weft_status status = open_checkpoint(save, engine, directory, state, identities, files, err);
    for (int64_t i = 0; i <= engine->plan.n_states && status == WEFT_OK; i++) {
        const part *one = &self->parts[i];
        const weft_ref from = weft_engine_region(engine, hold_of(i)).ref,
                       to = weft_ref_at(self->slot.ref, one->copy - self->memory);
        if (one->bytes == 0) continue;
        if (engine->plan.visible)
            WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, one->bytes);
        else
            status = weft_stream_sync_download(&self->order, (char *)(uintptr_t)one->copy, from, one->bytes, NULL, err);
    }
    if (status == WEFT_OK) status = weft_stream_sync_finish(&self->order, err);
    if (status == WEFT_OK) {
        save->peers = &self->relay;
        save->parameters = copied_region(self, 0);
        for (int64_t i = 0; i < engine->plan.n_states; i++) save->states[i] = copied_region(self, 1 + i);
        save->before_manifest = first;
        save->context = context;
        self->request.kind = REQUEST_NONE;
        self->closed = false;
        self->err = (weft_error)WEFT_ERROR_INIT;
        self->begin = weft_clock_seconds();
        (void)sigfillset(&blocked); /* signals must interrupt the main thread's calls */
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)sigdelset(&blocked, faults[i]);
        (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
        code = pthread_create(&self->thread, NULL, write_copy, self);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        self->runs = code == 0;
        if (code != 0)
            status = weft_error_set(err, WEFT_E_SYSTEM, "no thread for an asynchronous save: %s", strerror(code));
    }
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status != WEFT_OK) abort_save(self);
    return status;
}

weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, weft_async_result *out,
                                       weft_error *err) {
    request_kind kind = REQUEST_NONE;
    weft_status status = WEFT_OK;
    out->ended = false;
    if (!self->runs) return WEFT_OK;
    status = get_common_request(self, &kind, waits ? FOREVER : AT_ONCE, err);
    while (status == WEFT_OK && kind != REQUEST_NONE && kind != REQUEST_END) {
        status = answer(self, kind, err);
        if (status == WEFT_OK) status = get_common_request(self, &kind, waits ? FOREVER : SHORTLY, err);
    }
    if (status != WEFT_OK || kind == REQUEST_NONE) return status;
    *out = (weft_async_result){true, self->save.record.state, 0.0};
    join_thread(self);
    out->seconds = self->seconds;
    if (self->status != WEFT_OK && err != NULL) *err = self->err;
    return self->status;
}

void weft_async_checkpoint_destroy(weft_async_checkpoint *self) {
    if (self == NULL) return;
    abort_save(self);
    (void)pthread_mutex_destroy(&self->lock);
    (void)pthread_cond_destroy(&self->is_requested);
    (void)pthread_cond_destroy(&self->is_answered);
    weft_account_free(&self->engine->account, &self->slot, WEFT_ACCOUNT_SNAPSHOT);
    if (!self->engine->plan.visible) weft_stream_sync_free(&self->order, self->memory);
    free(self->relay.codes);
    free(self->kinds);
    free(self);
}
