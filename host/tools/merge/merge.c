/* host/tools/merge/merge.c: see merge.h. */
#include "tools/merge/merge.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "base/safetensors.h"
#include "model/config_json.h"
#include "model/convert.h"
#include "model/stop_ids.h"
#include "model/weights.h"
#include "plugin/enter.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 22, STRIP = 1 << 16, TEXT_LIMIT = 64 << 20 }; /* elements per chunk, elements per task, bytes */
#define CARRIED_LIMIT ((size_t)1 << 40)

typedef struct merge {
    const weft_merging *what;
    weft_safetensors *files;
    float **values;                      /* [n_parameters] values of the adapter's file in fp32; NULL: absent */
    int32_t *sites;                      /* [n_parameters] 1 + the claimed site; 0: not claimed */
    char *stored;                        /* a chunk in its storage type */
    float *buffer;                       /* the same chunk in fp32 */
    float *numbers;                      /* the requested part of it */
    double *mean;                        /* mean row of a table with fewer rows than the vocabulary */
    json_t *map;                         /* weight map of the index */
    int64_t bytes;                       /* total of all tensors */
    bool is_carried[WEFT_MOST_ADAPTERS]; /* not merged: it is saved as an adapter of the merged model */
} merge;

/* ---- adapters to merge ---- */

static weft_status refuse_tied(const weft_site *view, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "'%s' is tied to the head, which the adapter does not change: merging into the shared matrix "
                          "would change the head too. Fix: use the adapter without merging, or adapt an untied model",
                          view->path);
}

/* Rejects sites of attention and of the head's input, which have no matrix in the base. */
static weft_status refuse_computed(const weft_site *view, const char *title, weft_error *err) {
    if (view->kind == WEFT_SITE_HEAD)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "%s changes the input of '%s', which is no weight: it cannot be merged", title,
                              view->path);
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "%s changes '%s', which is attention and no weight: it cannot be merged", title, view->path);
}

static bool can_merge(const weft_adapter_plugin *plugin) {
    return WEFT_HAS(plugin, merge) && plugin->merge != NULL;
}

/* True if the adapter only changes the head's input, which works the same with merged weights. An adapter that itself
 * reads weights, as in attention, may not: it was trained with unmerged weights. */
static bool stands_before_head(const weft_declared *declared, int32_t adapter) {
    for (int32_t i = 0; i < declared->n_sites; i++)
        if (declared->sites[i].claimed == adapter + 1 && declared->sites[i].view.kind != WEFT_SITE_HEAD) return false;
    return true;
}

/* Marks adapters to carry along, if others are merged. */
static weft_status choose_carried(merge *self, weft_error *err) {
    const weft_declared *declared = self->what->declared;
    int32_t n_merged = 0;
    char title[256];
    for (int32_t i = 0; i < declared->n_adapters; i++) n_merged += can_merge(declared->adapters[i].plugin);
    for (int32_t i = 0; i < declared->n_adapters; i++) {
        if (can_merge(declared->adapters[i].plugin)) continue;
        self->is_carried[i] = n_merged > 0 && stands_before_head(declared, i);
        weft_plugin_title(title, sizeof title, declared->adapters[i].plugin);
        if (!self->is_carried[i])
            return weft_error_set(err, WEFT_E_UNSUPPORTED, "%s cannot be merged into a model's weights", title);
    }
    return WEFT_OK;
}

static weft_status find_sites(merge *self, weft_error *err) {
    const weft_declared *declared = self->what->declared;
    char title[256];
    for (int32_t i = 0; i < declared->n_sites; i++) {
        const weft_site *view = &declared->sites[i].view;
        const int32_t by = declared->sites[i].claimed - 1;
        if (by < 0 || view->whole >= 0 || self->is_carried[by]) continue;
        weft_plugin_title(title, sizeof title, declared->adapters[by].plugin);
        if (view->weight == NULL || view->kind == WEFT_SITE_HEAD) return refuse_computed(view, title, err);
        if (view->kind == WEFT_SITE_EMBEDDING && declared->parameters[view->weight->parameter].n_aliases > 0)
            return refuse_tied(view, err);
        self->sites[view->weight->parameter] = i + 1;
    }
    return WEFT_OK;
}

static const float *value_of(void *context, const weft_weight *weight) {
    const merge *self = context;
    return self->values[weight->parameter];
}

/* Rows of one tensor, divided into strips for threads. */
typedef struct strips {
    const merge *self;
    int32_t site;
    int64_t first, rows, width, each; /* each: rows per strip */
    weft_error *errors;               /* [strips] */
} strips;

static void merge_strip(int64_t i, void *context) {
    const strips *job = context;
    const weft_declared *declared = job->self->what->declared;
    const weft_joined_adapter *by = &declared->adapters[declared->sites[job->site].claimed - 1];
    const int64_t from = i * job->each, left = job->rows - from;
    const weft_merge piece = {.struct_size = (uint32_t)sizeof piece,
                              .w = job->self->numbers + from * job->width,
                              .first = job->first + from,
                              .rows = left < job->each ? left : job->each,
                              .site = (uint32_t)job->site,
                              .context = (void *)(uintptr_t)job->self,
                              .values = value_of};
    job->errors[i].code = (int32_t)by->plugin->merge(by->adapter, &piece, &job->errors[i]);
}

static weft_status merge_rows(const merge *self, int32_t site, int64_t first, int64_t rows, int64_t width,
                              weft_error *err) {
    strips job = {self, site, first, rows, width, STRIP / width + 1, NULL};
    const int64_t n = (rows + job.each - 1) / job.each;
    weft_status status = WEFT_OK;
    job.errors = weft_alloc(n, sizeof *job.errors);
    for (int64_t i = 0; i < n; i++) job.errors[i].struct_size = (uint32_t)sizeof *job.errors;
    self->what->host->parallel_for(self->what->host, n, merge_strip, &job);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (job.errors[i].code != WEFT_OK)
            status = weft_error_set(err, (weft_status)job.errors[i].code, "%s", job.errors[i].text);
    free(job.errors);
    return status;
}

/* ---- tensors ---- */

static weft_status refuse_packed(const weft_tensor *tensor, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "'%s' is stored in %s: packing the merged matrix again would round off most of the update. "
                          "Fix: --dtype bf16, fp16 or fp32, which writes all packed matrices unpacked; or merge into "
                          "the model before packing, which has all digits",
                          tensor->name, weft_dtype_name(weft_packed_type(tensor)));
}

/* True for a matrix of the model that the file contains packed. */
static bool is_packed_shape(const merge *self, const weft_tensor *tensor, int32_t parameter) {
    return parameter >= 0 && weft_packed_holds(tensor, &self->what->declared->parameters[parameter]);
}

static int64_t numel_of(const weft_tensor_spec *spec) {
    int64_t n = 1;
    for (int32_t d = 0; d < spec->rank; d++) n *= spec->dims[d];
    return n;
}

/* True for a table of the model that lacks the rows of added tokens in the file. */
static bool lacks_rows(const merge *self, const weft_tensor *tensor, int32_t parameter) {
    const weft_declared *declared = self->what->declared;
    const weft_parameter *p = parameter < 0 ? NULL : &declared->parameters[parameter];
    return p != NULL && declared->vocabulary.rows > declared->vocabulary.before && tensor->rank == 2 && p->rank == 2 &&
           tensor->dims[0] == declared->vocabulary.before && p->dims[0] == declared->vocabulary.rows;
}

/* Returns the output tensor: of the input's shape, or of the matrix's if it is unpacked or extended. */
static weft_tensor_spec spec_of(const merge *self, const weft_tensor *tensor) {
    const int32_t parameter = weft_declared_find(self->what->declared, tensor->name), to = self->what->dtype;
    const bool unpacked = to != 0 && is_packed_shape(self, tensor, parameter);
    const bool reshaped = unpacked || lacks_rows(self, tensor, parameter);
    weft_tensor_spec spec = {.name = tensor->name, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(spec.dims, tensor->dims, sizeof tensor->dims);
    if (to != 0 && (unpacked || weft_is_convertible(tensor->dtype))) spec.dtype = to;
    if (!reshaped) return spec;
    spec.rank = 2;
    memcpy(spec.dims, self->what->declared->parameters[parameter].dims, 2 * sizeof spec.dims[0]);
    return spec;
}

/* Unpacks numbers. They start at the block boundary at or before the first requested element. */
static weft_status read_packed(merge *self, const weft_tensor *tensor, const weft_parameter *p, int64_t first,
                               int64_t n, weft_error *err) {
    const int64_t block = weft_dtype_block(p->dtype), from = first / block * block, end = first + n;
    const int64_t whole = (end + block - 1) / block * block, last = whole < p->numel ? whole : p->numel;
    const weft_status status = weft_safetensors_read(self->files, self->stored, tensor, weft_dtype_span(p->dtype, from),
                                                     weft_dtype_span(p->dtype, last - from), err);
    if (status == WEFT_OK) weft_packing_take(self->buffer, p->dtype, self->stored, last - from);
    self->numbers = self->buffer + (first - from);
    return status;
}

static weft_status refuse_type(const merge *self, const weft_tensor *tensor, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA, "%s: '%s' is %s, which is not read; F32, BF16 and F16 are",
                          self->what->base, tensor->name, weft_tensor_dtype_name(tensor->dtype));
}

/* Returns elements from `first` on, and the mean of the file's rows for added rows (program/tokens.c). */
static weft_status read_numbers(const merge *self, const weft_tensor *tensor, int64_t row, int64_t first, int64_t n,
                                weft_error *err) {
    const int64_t width = weft_dtype_bytes(tensor->dtype), left = tensor->numel - first;
    const int64_t there = left < 0 ? 0 : left < n ? left : n;
    weft_status status = WEFT_OK;
    if (there > 0) status = weft_safetensors_read(self->files, self->stored, tensor, first * width, there * width, err);
    if (status == WEFT_OK && !weft_convert(self->numbers, WEFT_F32, self->stored, tensor->dtype, there))
        status = refuse_type(self, tensor, err);
    if (status != WEFT_OK) return status;
    for (int64_t i = 0; i < there && self->mean != NULL; i++) self->mean[(first + i) % row] += (double)self->numbers[i];
    for (int64_t i = there; i < n; i++)
        self->numbers[i] = (float)(self->mean[(first + i) % row] / (double)tensor->dims[0]);
    return WEFT_OK;
}

/* Returns elements [first, first + n) of a tensor, merged if an adapter changes them. */
static weft_status make_numbers(merge *self, const weft_tensor *tensor, int32_t parameter, int64_t row, int64_t first,
                                int64_t n, weft_error *err) {
    const int32_t site = parameter < 0 ? 0 : self->sites[parameter];
    const bool replaced = parameter >= 0 && self->values[parameter] != NULL;
    weft_status status = WEFT_OK;
    self->numbers = self->buffer;
    if (replaced) {
        memcpy(self->numbers, self->values[parameter] + first, (size_t)n * sizeof(float));
    } else if (is_packed_shape(self, tensor, parameter)) {
        status = read_packed(self, tensor, &self->what->declared->parameters[parameter], first, n, err);
    } else {
        status = read_numbers(self, tensor, row, first, n, err);
    }
    return status == WEFT_OK && site > 0 ? merge_rows(self, site - 1, first / row, n / row, row, err) : status;
}

/* ---- overflow ---- */

/* Returns the smallest value that rounds to infinity in the type. */
static float end_of(int32_t dtype) {
    return dtype == WEFT_F16 ? 65520.0f : dtype == WEFT_BF16 ? 0x1.ffp127f : INFINITY;
}

static weft_status refuse_number(const merge *self, const weft_tensor *tensor, float x, int32_t to, int64_t at,
                                 weft_error *err) {
    const int64_t width = tensor->rank > 1 ? tensor->dims[1] : 1;
    char place[80];
    if (tensor->rank < 2) (void)snprintf(place, sizeof place, "element %lld", (long long)at);
    else (void)snprintf(place, sizeof place, "row %lld, column %lld", (long long)(at / width), (long long)(at % width));
    if (isfinite(x))
        return weft_error_set(err, WEFT_E_USER, "'%s' has %g in %s, which %s cannot represent. Fix: --dtype %s",
                              tensor->name, (double)x, place, weft_dtype_name(to), to == WEFT_F16 ? "bf16" : "fp32");
    return weft_error_set(
        err, WEFT_E_DATA,
        "'%s' would have %s in %s, which is no number: the base in %s has one there, or the sum of it "
        "and the update is too large",
        tensor->name, isnan(x) ? "NaN" : "infinity", place, self->what->base);
}

static weft_status check_numbers(const merge *self, const weft_tensor *tensor, int32_t to, int64_t first, int64_t n,
                                 weft_error *err) {
    const float end = end_of(to);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(self->numbers[i]) < end)) return refuse_number(self, tensor, self->numbers[i], to, first + i, err);
    return WEFT_OK;
}

static weft_status check_values(const merge *self, weft_error *err) {
    const weft_declared *declared = self->what->declared;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        for (int64_t i = 0; self->values[p] != NULL && i < parameter->numel; i++) {
            if (isfinite(self->values[p][i])) continue;
            return weft_error_set(
                err, WEFT_E_DATA,
                "%s: '%s' contains %s: the run of the adapter diverged. Fix: merge one of its earlier checkpoints",
                self->what->adapter, parameter->name, isnan(self->values[p][i]) ? "NaN" : "infinity");
        }
    }
    return WEFT_OK;
}

/* ---- a tensor ---- */

/* Copies a tensor unchanged if it is not merged and keeps its type. */
static weft_status write_tensor(merge *self, weft_tensor_writer *writer, int32_t i, const weft_tensor *tensor,
                                const weft_tensor_spec *spec, weft_error *err) {
    const int32_t to = spec->dtype, parameter = weft_declared_find(self->what->declared, tensor->name);
    const bool grows = lacks_rows(self, tensor, parameter);
    const bool changed = to != tensor->dtype || grows ||
                         (parameter >= 0 && (self->sites[parameter] > 0 || self->values[parameter]));
    const int64_t unit = changed && spec->rank == 2 ? spec->dims[1] : 1; /* complete rows */
    const int64_t most = PIECE / unit > 0 ? PIECE / unit * unit : unit, numel = numel_of(spec);
    const int64_t width = weft_dtype_bytes(tensor->dtype), out = weft_dtype_bytes(to);
    weft_status status = WEFT_OK;
    if (grows) self->mean = weft_alloc(unit, sizeof *self->mean);
    for (int64_t first = 0; first < numel && status == WEFT_OK; first += most) {
        const int64_t n = numel - first < most ? numel - first : most;
        if (changed) status = make_numbers(self, tensor, parameter, unit, first, n, err);
        else status = weft_safetensors_read(self->files, self->stored, tensor, first * width, n * width, err);
        if (changed && status == WEFT_OK) status = check_numbers(self, tensor, to, first, n, err);
        if (changed && status == WEFT_OK) (void)weft_convert(self->stored, to, self->numbers, WEFT_F32, n);
        if (status == WEFT_OK) status = weft_tensor_writer_write(writer, i, first * out, self->stored, n * out, err);
    }
    free(self->mean);
    self->mean = NULL;
    return status;
}

static weft_status check_tensor(const merge *self, const weft_tensor *tensor, weft_error *err) {
    const int32_t parameter = weft_declared_find(self->what->declared, tensor->name);
    return is_packed_shape(self, tensor, parameter) && self->what->dtype == 0 ? refuse_packed(tensor, err) : WEFT_OK;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static weft_status write_list(merge *self, const char *path, const weft_tensor **tensors, const weft_tensor_spec *specs,
                              int32_t n, weft_error *err) {
    weft_tensor_writer *writer = NULL;
    weft_status status = weft_tensor_writer_open(&writer, path, specs, n, true, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        status = write_tensor(self, writer, i, tensors[i], &specs[i], err);
        (void)json_object_set_new(self->map, tensors[i]->name, json_string(name_of(path)));
        self->bytes += weft_dtype_span(specs[i].dtype, numel_of(&specs[i]));
    }
    if (status == WEFT_OK) return weft_tensor_writer_finish(writer, err);
    weft_tensor_writer_cancel(writer);
    return status;
}

static weft_status write_file(merge *self, int32_t file, weft_error *err) {
    const weft_safetensors *files = self->files;
    const weft_tensor **tensors = weft_alloc(files->n_tensors, sizeof(const weft_tensor *));
    weft_tensor_spec *specs = weft_alloc(files->n_tensors, sizeof *specs);
    char path[WEFT_PATH_BYTES];
    int32_t n = 0;
    weft_status status = weft_path_join(path, self->what->directory, name_of(files->files[file].path), err);
    for (int32_t i = 0; i < files->n_tensors && status == WEFT_OK; i++) {
        const weft_tensor *tensor = &files->tensors[i];
        if (tensor->file != file) continue;
        status = check_tensor(self, tensor, err);
        specs[n] = spec_of(self, tensor);
        tensors[n++] = tensor;
    }
    if (status == WEFT_OK) status = write_list(self, path, tensors, specs, n, err);
    free(specs);
    free((void *)tensors);
    return status;
}

/* ---- other files ---- */

static weft_status write_text(const merge *self, const char *name, const char *text, size_t n, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    const weft_status status = weft_path_join(path, self->what->directory, name, err);
    return status == WEFT_OK ? weft_file_replace(path, text, n, err) : status;
}

static weft_status write_index(const merge *self, weft_error *err) {
    json_t *index =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)self->bytes, "weight_map", self->map);
    char *text = index == NULL ? NULL : json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
    const weft_status status = text == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for the index")
                                            : write_text(self, "model.safetensors.index.json", text, strlen(text), err);
    free(text);
    json_decref(index);
    return status;
}

/* True for text files of a model's directory: configuration, tokenizer, templates. */
static bool is_copied(const char *name) {
    if (weft_words_end(name, ".index.json") || strncmp(name, "adapter_", 8) == 0 || name[0] == '.') return false;
    return weft_words_end(name, ".json") || weft_words_end(name, ".txt") || weft_words_end(name, ".model") ||
           weft_words_end(name, ".jinja");
}

/* True for the tokenizer files that an adapter's directory may also contain. */
static bool is_of_tokenizer(const char *name) {
    static const char *const begins[] = {"tokenizer", "chat_template", "special_tokens", "added_tokens"};
    bool is = false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) is |= strncmp(name, begins[i], strlen(begins[i])) == 0;
    return is && is_copied(name);
}

/* Sets the merged model's dtype and added tokens in the text. */
static weft_status change_text(const merge *self, const char *name, char **text, size_t *n, weft_error *err) {
    const weft_declared *declared = self->what->declared;
    const bool is_config = strcmp(name, "config.json") == 0, grows = declared->vocabulary.rows > 0;
    char pad[16], rows[32];
    const weft_json_change changes[] = {{"vocab_size", rows}, {"pad_token_id", pad}};
    const size_t first = is_config ? 0 : 1, end = declared->vocabulary.pad < 0 ? 1 : 2;
    bool was_packed = false;
    weft_status status = WEFT_OK;
    if (!is_config && strcmp(name, "generation_config.json") != 0) return WEFT_OK;
    if (is_config) status = weft_quantization_take(&was_packed, text, n, name, err);
    if (status != WEFT_OK) return status;
    (void)snprintf(pad, sizeof pad, "%d", (int)declared->vocabulary.pad);
    (void)snprintf(rows, sizeof rows, "%lld", (long long)declared->vocabulary.rows);
    if (grows && first < end) status = weft_config_json_change(text, n, changes + first, end - first, err);
    if (status == WEFT_OK && is_config) status = weft_config_json_set_head(declared, text, n, err);
    if (status == WEFT_OK && is_config && self->what->dtype != 0)
        status = weft_config_json_set_dtype(text, n, self->what->dtype, err);
    return status;
}

static weft_status copy_text(const merge *self, const char *from, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES], *text = NULL;
    size_t n = 0;
    weft_status status = weft_path_join(path, from, name, err);
    if (status == WEFT_OK) status = weft_text_read(&text, &n, path, TEXT_LIMIT, err);
    if (status == WEFT_OK) status = change_text(self, name, &text, &n, err);
    if (status == WEFT_OK) status = write_text(self, name, text, n, err);
    free(text);
    return status;
}

typedef struct text_copy {
    const merge *merge;
    const char *from;
    bool (*is_meant)(const char *name);
} text_copy;

static weft_status copy_if_meant(void *context, const char *name, weft_error *err) {
    const text_copy *self = context;
    return self->is_meant(name) ? copy_text(self->merge, self->from, name, err) : WEFT_OK;
}

/* Copies the end-of-text tokens that the adapter's run saved. */
static weft_status take_end(const merge *self, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_stop_ids ends = {.n = 0};
    bool is_there = false;
    weft_status status = weft_path_join(path, self->what->adapter, "generation_config.json", err);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    if (status != WEFT_OK || !is_there) return status;
    status = weft_stop_ids_read(&ends, self->what->adapter, -1, err);
    return status == WEFT_OK ? weft_stop_ids_save(&ends, &ends, self->what->directory, err) : status;
}

static weft_status copy_texts(const merge *self, const char *from, bool (*is_meant)(const char *name),
                              weft_error *err) {
    text_copy copy = {self, from, is_meant};
    return weft_tree_visit(from, copy_if_meant, &copy, err);
}

/* ---- carried adapters ---- */

static weft_status copy_file(const char *from, const char *to, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES], *bytes = NULL;
    size_t n = 0;
    weft_status status = weft_path_join(path, from, name, err);
    if (status == WEFT_OK) status = weft_text_read(&bytes, &n, path, CARRIED_LIMIT, err);
    if (status == WEFT_OK) status = weft_path_join(path, to, name, err);
    if (status == WEFT_OK) status = weft_file_replace(path, bytes, n, err);
    free(bytes);
    return status;
}

typedef struct copying {
    const char *from, *to;
} copying;

static weft_status copy_template(void *context, const char *name, weft_error *err) {
    const copying *self = context;
    if (!weft_words_end(name, ".jinja")) return WEFT_OK;
    if (mkdir(self->to, 0777) != 0 && errno != EEXIST)
        return weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be created: %s", self->to, strerror(errno));
    return copy_file(self->from, self->to, name, err);
}

/* Copies the templates in additional_chat_templates, if present. */
static weft_status copy_templates(const merge *self, const char *from, weft_error *err) {
    char inside[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    copying paths = {inside, to};
    weft_status status = weft_path_join(inside, from, WEFT_ADDITIONAL_TEMPLATES, err);
    if (status == WEFT_OK) status = weft_path_join(to, self->what->directory, WEFT_ADDITIONAL_TEMPLATES, err);
    return status == WEFT_OK ? weft_tree_visit(inside, copy_template, &paths, err) : status;
}

/* Saves OUT/ID as an adapter that was created on the merged model. Carried adapters are not in the directory of the
 * base's trained parameters (stack.h). */
static weft_status carry_adapter(const merge *self, int32_t adapter, weft_error *err) {
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    weft_adapter_origin origin;
    weft_status status = weft_stack_place(from, self->what->declared, adapter, self->what->adapter, err);
    if (status == WEFT_OK) status = weft_stack_place(to, self->what->declared, adapter, self->what->directory, err);
    if (status == WEFT_OK) status = weft_origin_load(&origin, from, err);
    if (status == WEFT_OK) status = weft_base_identify(&origin, self->what->directory, NULL, err);
    if (status == WEFT_OK && mkdir(to, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be created: %s", to, strerror(errno));
    if (status == WEFT_OK) status = copy_file(from, to, WEFT_ADAPTER_WEIGHTS, err);
    if (status == WEFT_OK) status = copy_file(from, to, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK) status = weft_origin_save(&origin, to, err);
    return status == WEFT_OK ? weft_directory_sync(to, err) : status;
}

/* ---- merge ---- */

/* Checks that the base is the model on which the adapter was declared. The output consists of the base's tensors, so a
 * tensor with another name would be copied without the update. */
static weft_status check_base(const merge *self, weft_error *err) {
    const weft_merging *what = self->what;
    const weft_status status = weft_weights_check_files(what->declared, self->files, what->base, err);
    return status == WEFT_OK ? weft_weights_check_ties(what->declared, self->files, what->base, err) : status;
}

static weft_status open_merge(merge *self, weft_error *err) {
    const int32_t n = self->what->declared->n_parameters;
    int64_t longest = 1;
    weft_status status = weft_weights_open(&self->files, self->what->declared, self->what->base, err);
    if (status == WEFT_OK) status = check_base(self, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < self->files->n_tensors; i++)
        if (self->files->tensors[i].rank > 1 && self->files->tensors[i].dims[1] > longest)
            longest = self->files->tensors[i].dims[1];
    for (int32_t i = 0; i < self->what->declared->n_parameters; i++)
        if (self->what->declared->parameters[i].rank > 1 && self->what->declared->parameters[i].dims[1] > longest)
            longest = self->what->declared->parameters[i].dims[1];
    longest += 2 * 1024; /* for partial blocks at both ends */
    self->values = weft_alloc(n, sizeof *self->values);
    self->sites = weft_alloc(n, sizeof *self->sites);
    self->stored = malloc((size_t)(PIECE + longest) * 8);
    self->buffer = malloc((size_t)(PIECE + longest) * sizeof *self->buffer);
    self->map = json_object();
    if (self->stored == NULL || self->buffer == NULL || self->map == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to merge an adapter");
    status = choose_carried(self, err);
    if (status == WEFT_OK) status = find_sites(self, err);
    if (status == WEFT_OK) status = weft_adapter_values(self->values, self->what->declared, self->what->adapter, err);
    return status == WEFT_OK ? check_values(self, err) : status;
}

static void close_merge(merge *self) {
    for (int32_t i = 0; self->values != NULL && i < self->what->declared->n_parameters; i++) free(self->values[i]);
    json_decref(self->map);
    free(self->buffer);
    free(self->stored);
    free(self->sites);
    free(self->values);
    weft_safetensors_close(self->files);
}

weft_status weft_adapter_merge(const weft_merging *what, weft_error *err) {
    merge self = {.what = what};
    weft_status status = open_merge(&self, err);
    for (int32_t i = 0; status == WEFT_OK && i < self.files->n_files; i++) status = write_file(&self, i, err);
    if (status == WEFT_OK && self.files->n_files > 1) status = write_index(&self, err);
    if (status == WEFT_OK) status = copy_texts(&self, what->base, is_copied, err);
    if (status == WEFT_OK) status = copy_templates(&self, what->base, err);
    if (status == WEFT_OK) status = copy_texts(&self, what->adapter, is_of_tokenizer, err);
    if (status == WEFT_OK) status = copy_templates(&self, what->adapter, err);
    if (status == WEFT_OK) status = take_end(&self, err);
    for (int32_t i = 0; status == WEFT_OK && i < what->declared->n_adapters; i++)
        if (self.is_carried[i]) status = carry_adapter(&self, i, err);
    close_merge(&self);
    return status;
}
