/* host/model/weights.c: loads and initializes weights. All files are compared with the declared model before the region
 * is modified, so that one message lists all mismatches. weights_save.c saves weights. */
#include "model/weights.h"

#include "base/alloc.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "base/units.h"
#include "model/convert.h"
#include "plugin/services.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

/* ---- mismatches ---- */

enum { SHOWN = 4 }; /* names per category in a message */

/* Formats "a, b, c, d, ..." and the total number. */
typedef struct name_list {
    int n;
    char text[448];
} name_list;

static void add_name(name_list *list, const char *format, ...) WEFT_PRINTF(2, 3);
static void add_name(name_list *list, const char *format, ...) {
    size_t used = 0;
    va_list args;
    if (list->n++ > SHOWN) return;
    if (list->n > 1) weft_words_append(list->text, sizeof list->text, list->n > SHOWN ? ", ..." : ", ");
    if (list->n > SHOWN) return;
    used = strlen(list->text);
    va_start(args, format);
    (void)vsnprintf(list->text + used, sizeof list->text - used, format, args);
    va_end(args);
}

typedef struct misfit {
    name_list missing, shapes, types, packed, unexpected;
    char prefix[128]; /* before names of the model in unexpected tensors; "": not found */
} misfit;

/* True if the tensor lacks only the rows that were added to the vocabulary. */
static bool lacks_rows(const weft_tensor *tensor, const weft_parameter *parameter, const weft_declared *declared) {
    const weft_vocabulary *with = &declared->vocabulary;
    if (with->rows == with->before || tensor->rank != parameter->rank || tensor->rank < 1) return false;
    if (tensor->dims[0] != with->before || parameter->dims[0] != with->rows) return false;
    return tensor->rank == 1 || tensor->dims[1] == parameter->dims[1];
}

/* Reports a wrong shape. For a packed parameter the message shows the shape of its bytes if the file has bytes. */
static void add_shape(misfit *found, const weft_tensor *tensor, const weft_parameter *parameter) {
    const weft_tensor_spec packed = weft_packed_spec(parameter, tensor->dtype);
    const bool in_bytes = weft_parameter_is_packed(parameter) && tensor->dtype == WEFT_U8;
    char is[WEFT_DIMS_BYTES], should[WEFT_DIMS_BYTES];
    if (tensor->joined != NULL)
        weft_tensor_print_dims(is, (const int64_t[]){tensor->joined->rows, tensor->joined->columns}, 2);
    else weft_tensor_print_dims(is, tensor->dims, tensor->rank);
    if (in_bytes && tensor->joined == NULL) weft_tensor_print_dims(should, packed.dims, packed.rank);
    else weft_tensor_print_dims(should, parameter->dims, parameter->rank);
    add_name(&found->shapes, "%s is %s, not %s", tensor->name, is, should);
}

/* True for a buffer of old checkpoints, which no model uses. */
static bool is_leftover(const weft_tensor *tensor, const weft_declared *declared) {
    return weft_words_end(tensor->name, "rotary_emb.inv_freq") && weft_declared_find(declared, tensor->name) < 0;
}

static void check_tensor(misfit *found, const weft_tensor *tensor, const weft_declared *declared) {
    const int32_t index = weft_declared_find(declared, tensor->name);
    const weft_parameter *parameter = index < 0 ? NULL : &declared->parameters[index];
    size_t n = 0;
    if (is_leftover(tensor, declared)) return;
    if (parameter == NULL) {
        add_name(&found->unexpected, "%s", tensor->name);
        if (found->prefix[0] == '\0') n = weft_weights_unknown_prefix(declared, tensor->name);
        if (n < sizeof found->prefix)
            weft_words_append(found->prefix, sizeof found->prefix, "%.*s", (int)n, tensor->name);
    } else if (weft_packed_holds(tensor, parameter)) {
        return;
    } else if (tensor->joined != NULL && !weft_parameter_is_packed(parameter)) {
        add_name(&found->packed, "%s is %s", tensor->name, weft_dtype_name(tensor->joined->dtype));
    } else if (!weft_tensor_has_dims(tensor, parameter->dims, parameter->rank) &&
               !lacks_rows(tensor, parameter, declared)) {
        add_shape(found, tensor, parameter);
    } else if (!weft_is_convertible(tensor->dtype)) {
        add_name(&found->types, "%s is %s", tensor->name, weft_tensor_dtype_name(tensor->dtype));
    }
}

const weft_tensor *weft_weights_tensor(const weft_safetensors *files, const weft_parameter *parameter) {
    const weft_tensor *tensor = weft_safetensors_find(files, parameter->name);
    for (int32_t i = 0; i < parameter->n_aliases && tensor == NULL; i++)
        tensor = weft_safetensors_find(files, parameter->aliases[i]);
    return tensor;
}

static void append_names(char *text, size_t size, const char *what, const name_list *list) {
    if (list->n > 0)
        weft_words_append(text, size, "%s%d %s (%s)", text[0] == '\0' ? "" : "; ", list->n, what, list->text);
}

static void append_fix(char *text, size_t size, const misfit *found, const weft_declared *declared) {
    char head[512] = "";
    if (declared->info.head_path != NULL) (void)snprintf(head, sizeof head, "%s.weight", declared->info.head_path);
    if (strstr(found->unexpected.text, ".base_layer.") != NULL || strstr(found->unexpected.text, ".lora_") != NULL)
        weft_words_append(text, size,
                          ". These are the tensors of a PEFT model whose adapter is not merged. Fix: save "
                          "model.merge_and_unload() in Python; or save the adapter alone with "
                          "model.save_pretrained(DIR), and set [adapter] from = DIR and [model] path to the base");
    else if (found->prefix[0] != '\0')
        weft_words_append(text, size,
                          ". Names begin with the prefix '%s'. Fix: save the tensors without it, in Python: "
                          "save_file({k.removeprefix(\"%s\"): v for k, v in load_file(FILE).items()}, NEW_FILE, "
                          "{\"format\": \"pt\"}), with both functions from safetensors.torch",
                          found->prefix, found->prefix);
    else if (found->missing.n == 1 && strcmp(found->missing.text, head) == 0)
        weft_words_append(text, size,
                          ". Fix: save the model with AutoModelForCausalLM, because AutoModel saves no head; or set "
                          "tie_word_embeddings = true in its config.json, if its head is the embedding");
}

weft_status weft_weights_check_files(const weft_declared *declared, const weft_safetensors *files,
                                     const char *directory, weft_error *err) {
    char text[2600] = "";
    misfit found;
    memset(&found, 0, sizeof found);
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (!declared->parameters[p].added && weft_weights_tensor(files, &declared->parameters[p]) == NULL)
            add_name(&found.missing, "%s", declared->parameters[p].name);
    }
    for (int32_t i = 0; i < files->n_tensors; i++) check_tensor(&found, &files->tensors[i], declared);
    append_names(text, sizeof text, "missing", &found.missing);
    append_names(text, sizeof text, "of another shape", &found.shapes);
    append_names(text, sizeof text, "of a type that is not read, which are F32, BF16 and F16", &found.types);
    append_names(text, sizeof text, "packed, which only untied linears may be", &found.packed);
    append_names(text, sizeof text, "unexpected", &found.unexpected);
    append_fix(text, sizeof text, &found, declared);
    if (text[0] == '\0') return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "%s: its tensors do not fit the model that %s describes: %s", directory,
                          declared->config_path, text);
}

/* ---- reading ---- */

enum { COMPARED = 8192 }; /* elements at once */

weft_status weft_weights_same(bool *same, const weft_safetensors *a_files, const weft_tensor *a,
                              const weft_safetensors *b_files, const weft_tensor *b, weft_error *err) {
    float x[COMPARED], y[COMPARED];
    weft_status status = WEFT_OK;
    *same = true;
    for (int64_t first = 0; first < a->numel && *same && status == WEFT_OK; first += COMPARED) {
        const int64_t n = weft_smaller(COMPARED, a->numel - first);
        status = weft_weights_read_numbers(a_files, x, WEFT_F32, a, first, n, err);
        if (status == WEFT_OK) status = weft_weights_read_numbers(b_files, y, WEFT_F32, b, first, n, err);
        if (status == WEFT_OK) *same = memcmp(x, y, (size_t)n * sizeof(float)) == 0;
    }
    return status;
}

weft_status weft_weights_check_ties(const weft_declared *declared, const weft_safetensors *files, const char *directory,
                                    weft_error *err) {
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        const weft_tensor *tensor = weft_weights_tensor(files, parameter);
        for (int32_t i = 0; i < parameter->n_aliases; i++) {
            const weft_tensor *other = weft_safetensors_find(files, parameter->aliases[i]);
            bool same = true;
            weft_status status = WEFT_OK;
            if (other != NULL && other != tensor) status = weft_weights_same(&same, files, tensor, files, other, err);
            if (status != WEFT_OK) return status;
            if (!same)
                return weft_error_set(err, WEFT_E_DATA,
                                      "%s: '%s' and '%s' differ, but the model ties them: the directory's config.json "
                                      "does not match its weights",
                                      directory, tensor->name, other->name);
        }
    }
    return WEFT_OK;
}

weft_status weft_weights_load_files(const weft_region *region, weft_safetensors *files, const char *directory,
                                    weft_error *err) {
    const weft_declared *declared = region->declared;
    const weft_tensor **tensors = NULL;
    int leftovers = 0;
    weft_status status = weft_weights_check_files(declared, files, directory, err);
    for (int32_t i = 0; i < files->n_tensors; i++) leftovers += is_leftover(&files->tensors[i], declared);
    if (status == WEFT_OK && leftovers > 0)
        weft_log(
            weft_services(), WEFT_LOG_INFO,
            "%s: buffers rotary_emb.inv_freq (%d) of an old checkpoint are passed over; they follow from config.json",
            directory, leftovers);
    if (status == WEFT_OK) status = weft_weights_check_ties(declared, files, directory, err);
    if (status != WEFT_OK) return status;
    tensors = weft_alloc(declared->n_parameters, sizeof(const weft_tensor *));
    for (int32_t p = 0; p < declared->n_parameters; p++)
        tensors[p] = weft_weights_tensor(files, &declared->parameters[p]);
    status = weft_weights_read(region, files, tensors, err);
    free(tensors);
    return status;
}

weft_status weft_weights_check(const weft_declared *declared, const char *directory, weft_error *err) {
    weft_safetensors *files = NULL;
    weft_status status = weft_weights_open(&files, declared, directory, err);
    if (status == WEFT_OK) status = weft_weights_check_files(declared, files, directory, err);
    weft_safetensors_close(files);
    return status;
}

weft_status weft_weights_load(const weft_region *region, const char *directory, weft_error *err) {
    weft_safetensors *files = NULL;
    weft_status status = weft_weights_open(&files, region->declared, directory, err);
    if (status == WEFT_OK) status = weft_weights_load_files(region, files, directory, err);
    weft_safetensors_close(files);
    return status;
}

weft_status weft_weights_dtype(int32_t *out, int32_t *packed, const char *directory, weft_error *err) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    int64_t elements[3] = {0, 0, 0};
    int best = 0;
    weft_safetensors *files = NULL;
    const weft_status status = weft_safetensors_open_directory(&files, directory, err);
    if (status != WEFT_OK) return status;
    if (packed != NULL) *packed = 0;
    for (int32_t i = 0; i < files->n_tensors; i++) {
        for (int k = 0; k < 3; k++)
            if (files->tensors[i].dtype == dtypes[k]) elements[k] += files->tensors[i].numel;
        if (packed != NULL && *packed == 0) *packed = weft_packed_type(&files->tensors[i]);
    }
    for (int k = 1; k < 3; k++)
        if (elements[k] > elements[best]) best = k;
    weft_safetensors_close(files);
    *out = dtypes[best];
    return WEFT_OK;
}

/* ---- initialization ---- */

typedef struct init_job {
    uint64_t seed;
    const weft_declared *declared;
    const weft_safetensors *files; /* source of the model's own parameters; NULL: they are drawn */
    weft_packing *packings;        /* indexed by parameter: for packed matrices with row norms */
} init_job;

static void draw_four(double out[4], int32_t form, uint64_t seed, int32_t parameter, int64_t block) {
    const weft_random4 r = weft_random(seed, WEFT_RANDOM_INIT, (uint64_t)parameter, (uint64_t)block);
    for (int i = 0; i < 4 && form == WEFT_INIT_UNIFORM; i++) out[i] = ((double)r.v[i] + 0.5) * 0x1p-31 - 1;
    for (int i = 0; i < 4 && form != WEFT_INIT_UNIFORM; i += 2) {
        const double radius = sqrt(-2 * log(((double)r.v[i] + 1) * 0x1p-32));
        const double angle = 2 * M_PI * (double)r.v[i + 1] * 0x1p-32;
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* first must be a multiple of 4. */
static void draw(float *out, const init_job *job, int32_t parameter, int64_t first, int64_t n) {
    const weft_parameter *p = &job->declared->parameters[parameter];
    const bool constant = p->init_form == WEFT_INIT_CONSTANT || p->init_std == 0;
    double four[4] = {1, 1, 1, 1};
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0 && !constant) draw_four(four, p->init_form, job->seed, parameter, (first + i) / 4);
        out[i] = (float)(p->init_std * four[i % 4]);
    }
}

/* Returns elements of a model's parameter in fp32, from its files or from the counter-based generator. */
static weft_status give_numbers(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                                weft_error *err) {
    const init_job *job = context;
    const weft_tensor *tensor =
        job->files == NULL ? NULL : weft_weights_tensor(job->files, &job->declared->parameters[parameter]);
    if (tensor != NULL) return weft_weights_read_numbers(job->files, out, dtype, tensor, first, n, err);
    draw(out, job, parameter, first, n);
    return WEFT_OK;
}

/* ---- row norms ---- */

static bool is_packed_shape(const init_job *job, const weft_parameter *p) {
    const weft_tensor *tensor = job->files == NULL ? NULL : weft_weights_tensor(job->files, p);
    return weft_parameter_is_packed(p) && tensor != NULL && tensor->dtype == WEFT_U8;
}

/* Returns at most COMPARED elements after a round trip through the storage type. first and n are multiples of its
 * block, or n ends at the last element. */
static weft_status take_stored(const init_job *job, float *out, int32_t parameter, int64_t first, int64_t n,
                               weft_error *err) {
    const weft_parameter *p = &job->declared->parameters[parameter];
    unsigned char blocks[COMPARED * 2]; /* no block has more bytes per element */
    weft_status status = WEFT_OK;
    if (is_packed_shape(job, p)) {
        status = weft_safetensors_read(job->files, blocks, weft_weights_tensor(job->files, p),
                                       weft_dtype_span(p->dtype, first), weft_dtype_span(p->dtype, n), err);
    } else {
        status = give_numbers((void *)(uintptr_t)job, parameter, first, n, WEFT_F32, out, err);
        if (p->dtype == WEFT_F32 || status != WEFT_OK) return status;
        if (weft_parameter_is_packed(p)) weft_packing_put(&job->packings[parameter], blocks, out, first, n);
        else (void)weft_convert(blocks, p->dtype, out, WEFT_F32, n);
    }
    if (status != WEFT_OK) return status;
    if (weft_parameter_is_packed(p)) weft_packing_take(out, p->dtype, blocks, n);
    else (void)weft_convert(out, WEFT_F32, blocks, p->dtype, n);
    return WEFT_OK;
}

/* Computes the norm of a row. Reads start at a block boundary or a multiple of 4, because numbers are drawn in groups
 * of four. */
static weft_status norm_of_row(const init_job *job, float *out, int32_t parameter, int64_t row, weft_error *err) {
    const weft_parameter *p = &job->declared->parameters[parameter];
    const int64_t width = p->dims[1], end = (row + 1) * width;
    const int64_t block = weft_parameter_is_packed(p) ? weft_dtype_block(p->dtype) : 4;
    float values[COMPARED];
    double sum = 0;
    weft_status status = WEFT_OK;
    for (int64_t at = row * width / block * block; at < end && status == WEFT_OK; at += COMPARED) {
        const int64_t n = weft_smaller(COMPARED, weft_smaller(weft_round_up(end, block), p->numel) - at);
        status = take_stored(job, values, parameter, at, n, err);
        for (int64_t i = 0; i < n && status == WEFT_OK; i++)
            if (at + i >= row * width && at + i < end) sum += (double)values[i] * (double)values[i];
    }
    *out = (float)sqrt(sum);
    return status;
}

/* ---- fill ---- */

static weft_status fill_from_random(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype,
                                    void *out, weft_error *err) {
    enum { DRAWN = 4096 }; /* elements at once: complete blocks of any type */
    const init_job *job = context;
    const weft_parameter *p = &job->declared->parameters[parameter];
    const bool norms = p->init_form == WEFT_INIT_ROW_NORMS;
    float values[DRAWN];
    weft_status status = WEFT_OK;
    for (int64_t i = 0; norms && i < n && status == WEFT_OK; i++)
        status = norm_of_row(job, (float *)out + i, p->init_of, first + i, err);
    for (int64_t at = 0; !norms && at < n; at += DRAWN) {
        const int64_t some = weft_smaller(DRAWN, n - at);
        draw(values, context, parameter, first + at, some);
        (void)weft_convert((char *)out + weft_dtype_span(dtype, at), dtype, values, WEFT_F32, some);
    }
    return status;
}

weft_status weft_weights_init(const weft_region *region, uint64_t seed, bool added_alone, const weft_safetensors *files,
                              weft_error *err) {
    const weft_declared *declared = region->declared;
    init_job job = {seed, declared, files, NULL};
    weft_status status = WEFT_OK;
    int32_t n = 0, *drawn = weft_alloc(declared->n_parameters, sizeof *drawn);
    bool *is_packed = weft_alloc(declared->n_parameters, sizeof *is_packed);
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (added_alone && !declared->parameters[p].added) continue;
        is_packed[p] = weft_dtype_is_packed(weft_region_dtype(region, p));
        drawn[n++] = p;
    }
    /* Scans matrices that are packed while they are read a second time: row norms are those of the packed values. */
    job.packings = weft_alloc(declared->n_parameters, sizeof *job.packings);
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        const int32_t of = declared->parameters[p].init_of;
        if (declared->parameters[p].init_form != WEFT_INIT_ROW_NORMS || !weft_packing_is_kept(region, p)) continue;
        if (!weft_parameter_is_packed(&declared->parameters[of]) || is_packed_shape(&job, &declared->parameters[of]))
            continue;
        status = weft_packing_open(&job.packings[of], declared, of, give_numbers, &job, err);
    }
    if (status == WEFT_OK) status = weft_packing_fill(region, drawn, n, is_packed, fill_from_random, &job, err);
    for (int32_t p = 0; p < declared->n_parameters; p++) free(job.packings[p].scales);
    free(job.packings);
    free(is_packed);
    free(drawn);
    return status;
}
