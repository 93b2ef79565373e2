/* host/model/weights.c: loads and initializes weights. All files are compared with the declared model before the region
 * is modified, so that one message lists all mismatches. weights_save.c saves weights. */
#include "model/packing.h"
#include "model/weights.h"

#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/joined.h"
#include "model/convert.h"
#include "plugin/services.h"
#include <weft/blocks.h>
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
    const size_t used = strlen(list->text);
    const int before = list->n++;
    va_list args;
    if (before > SHOWN) return;
    if (before > 0) (void)snprintf(list->text + used, sizeof list->text - used, ", ");
    va_start(args, format);
    if (before == SHOWN) (void)snprintf(list->text + strlen(list->text), sizeof list->text - strlen(list->text), "...");
    else (void)vsnprintf(list->text + strlen(list->text), sizeof list->text - strlen(list->text), format, args);
    va_end(args);
}

typedef struct misfit {
    name_list missing, shapes, types, packed, unexpected;
    char prefix[128]; /* before names of the model in unexpected tensors; "": not found */
    int leftovers;
} misfit;

static void print_dims(char text[128], const int64_t *dims, int32_t rank) {
    size_t n = (size_t)snprintf(text, 128, "(");
    for (int32_t i = 0; i < rank && n < 100; i++)
        n += (size_t)snprintf(text + n, 128 - n, "%s%lld", i == 0 ? "" : ", ", (long long)dims[i]);
    (void)snprintf(text + n, 128 - n, ")");
}

static bool is_same_shape(const weft_tensor *tensor, const weft_parameter *parameter) {
    if (tensor->rank != parameter->rank) return false;
    for (int32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] != parameter->dims[i]) return false;
    return true;
}

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
    const int64_t matrix[2] = {tensor->joined == NULL ? 0 : tensor->joined->rows,
                               tensor->joined == NULL ? 0 : tensor->joined->columns};
    char is[128], should[128];
    if (tensor->joined != NULL) print_dims(is, matrix, 2);
    else print_dims(is, tensor->dims, tensor->rank);
    if (in_bytes && tensor->joined == NULL) print_dims(should, packed.dims, packed.rank);
    else print_dims(should, parameter->dims, parameter->rank);
    add_name(&found->shapes, "%s is %s, not %s", tensor->name, is, should);
}

static void add_unexpected(misfit *found, const char *name, const weft_declared *declared) {
    const size_t n = found->prefix[0] != '\0' ? 0 : weft_weights_unknown_prefix(declared, name);
    add_name(&found->unexpected, "%s", name);
    if (n > 0 && n < sizeof found->prefix) (void)snprintf(found->prefix, sizeof found->prefix, "%.*s", (int)n, name);
}

static void check_tensor(misfit *found, const weft_tensor *tensor, const weft_declared *declared) {
    const int32_t index = weft_declared_find(declared, tensor->name);
    if (index < 0) {
        if (weft_words_end(tensor->name, "rotary_emb.inv_freq")) found->leftovers++;
        else add_unexpected(found, tensor->name, declared);
        return;
    }
    if (weft_packed_holds(tensor, &declared->parameters[index])) return;
    if (tensor->joined != NULL && !weft_parameter_is_packed(&declared->parameters[index])) {
        add_name(&found->packed, "%s is %s", tensor->name, weft_dtype_name(tensor->joined->dtype));
        return;
    }
    if (!is_same_shape(tensor, &declared->parameters[index]) &&
        !lacks_rows(tensor, &declared->parameters[index], declared)) {
        add_shape(found, tensor, &declared->parameters[index]);
    } else if (!weft_dtype_is_floating(tensor->dtype)) {
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
    const size_t n = strlen(text);
    if (list->n > 0) (void)snprintf(text + n, size - n, "%s%d %s (%s)", n == 0 ? "" : "; ", list->n, what, list->text);
}

/* True if the missing tensor is the head's matrix. */
static bool lacks_head(const weft_declared *declared, const char *missing) {
    const char *head = declared->info.head_path;
    const size_t n = head == NULL ? 0 : strlen(head);
    return n > 0 && strncmp(missing, head, n) == 0 && strcmp(missing + n, ".weight") == 0;
}

static void append_fix(char *text, size_t size, const misfit *found, const weft_declared *declared) {
    const size_t n = strlen(text);
    if (found->prefix[0] != '\0')
        (void)snprintf(text + n, size - n,
                       ". Names begin with the prefix '%s'. Fix: save the tensors without it, in Python: "
                       "save_file({k.removeprefix(\"%s\"): v for k, v in load_file(FILE).items()}, NEW_FILE, "
                       "{\"format\": \"pt\"}), with both functions from safetensors.torch",
                       found->prefix, found->prefix);
    else if (found->missing.n == 1 && lacks_head(declared, found->missing.text))
        (void)snprintf(text + n, size - n,
                       ". Fix: save the model with AutoModelForCausalLM, because AutoModel saves no head; or set "
                       "tie_word_embeddings = true there, if its head is the embedding");
}

/* Compares the files with the model. leftovers: number of tensors that are buffers of old checkpoints, which no model
 * uses. */
static weft_status check_files(int *leftovers, const weft_safetensors *files, const weft_declared *declared,
                               const char *where, weft_error *err) {
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
    if (text[0] != '\0')
        return weft_error_set(err, WEFT_E_DATA, "%s: its tensors do not fit the model that %s describes: %s", where,
                              declared->config_path, text);
    *leftovers = found.leftovers;
    return WEFT_OK;
}

/* ---- reading ---- */

enum { COMPARED = 8192 }; /* elements at once */

static weft_status read_numbers(const weft_safetensors *files, float out[COMPARED], const weft_tensor *tensor,
                                int64_t first, int64_t n, weft_error *err) {
    const int64_t width = weft_dtype_bytes(tensor->dtype);
    float stored[COMPARED];
    const weft_status status = weft_safetensors_read(files, stored, tensor, first * width, n * width, err);
    if (status == WEFT_OK) (void)weft_convert(out, WEFT_F32, stored, tensor->dtype, n);
    return status;
}

weft_status weft_weights_same(bool *same, const weft_safetensors *a_files, const weft_tensor *a,
                              const weft_safetensors *b_files, const weft_tensor *b, weft_error *err) {
    float x[COMPARED], y[COMPARED];
    weft_status status = WEFT_OK;
    *same = true;
    for (int64_t first = 0; first < a->numel && *same && status == WEFT_OK; first += COMPARED) {
        const int64_t n = a->numel - first < COMPARED ? a->numel - first : COMPARED;
        status = read_numbers(a_files, x, a, first, n, err);
        if (status == WEFT_OK) status = read_numbers(b_files, y, b, first, n, err);
        if (status == WEFT_OK) *same = memcmp(x, y, (size_t)n * sizeof(float)) == 0;
    }
    return status;
}

static weft_status check_tie(const weft_safetensors *files, const weft_parameter *parameter, const char *where,
                             weft_error *err) {
    const weft_tensor *tensor = weft_weights_tensor(files, parameter);
    for (int32_t i = 0; i < parameter->n_aliases; i++) {
        const weft_tensor *other = weft_safetensors_find(files, parameter->aliases[i]);
        bool same = true;
        weft_status status = WEFT_OK;
        if (other != NULL && other != tensor) status = weft_weights_same(&same, files, tensor, files, other, err);
        if (status != WEFT_OK) return status;
        if (same) continue;
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: '%s' and '%s' differ, but the model ties them into one; the directory's config.json does "
            "not belong to its weights",
            where, tensor->name, other->name);
    }
    return WEFT_OK;
}

weft_status weft_weights_check_ties(const weft_declared *declared, const weft_safetensors *files, const char *directory,
                                    weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++)
        status = check_tie(files, &declared->parameters[p], directory, err);
    return status;
}

static weft_status load_files(const weft_region *region, weft_safetensors *files, const char *where, weft_error *err) {
    const weft_declared *declared = region->declared;
    const weft_tensor **tensors = NULL;
    int leftovers = 0;
    weft_status status = check_files(&leftovers, files, declared, where, err);
    if (leftovers > 0)
        weft_log(
            weft_services(), WEFT_LOG_INFO,
            "%s: buffers rotary_emb.inv_freq (%d) of an old checkpoint are passed over; they follow from config.json",
            where, leftovers);
    if (status == WEFT_OK) status = weft_weights_check_ties(declared, files, where, err);
    if (status != WEFT_OK) return status;
    tensors = malloc(((size_t)declared->n_parameters + 1) * sizeof(const weft_tensor *));
    if (tensors == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its list of tensors", where);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        tensors[p] = weft_weights_tensor(files, &declared->parameters[p]);
    status = weft_weights_read(region, files, tensors, err);
    free(tensors);
    return status;
}

weft_status weft_weights_load_files(const weft_region *region, weft_safetensors *files, const char *directory,
                                    weft_error *err) {
    return load_files(region, files, directory, err);
}

weft_status weft_weights_check_files(const weft_declared *declared, const weft_safetensors *files,
                                     const char *directory, weft_error *err) {
    int leftovers = 0;
    return check_files(&leftovers, files, declared, directory, err);
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

static void draw_four_normals(double out[4], uint64_t seed, int32_t parameter, int64_t block) {
    const weft_random4 r = weft_random(seed, WEFT_RANDOM_INIT, (uint64_t)parameter, (uint64_t)block);
    for (int i = 0; i < 4; i += 2) {
        const double radius = sqrt(-2 * log(((double)r.v[i] + 1) * 0x1p-32));
        const double angle = 2 * M_PI * (double)r.v[i + 1] * 0x1p-32;
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

static void draw_four_uniform(double out[4], uint64_t seed, int32_t parameter, int64_t block) {
    const weft_random4 r = weft_random(seed, WEFT_RANDOM_INIT, (uint64_t)parameter, (uint64_t)block);
    for (int i = 0; i < 4; i++) out[i] = ((double)r.v[i] + 0.5) * 0x1p-31 - 1;
}

/* first must be a multiple of 4. */
static void draw(float *out, const init_job *job, int32_t parameter, int64_t first, int64_t n) {
    const weft_parameter *p = &job->declared->parameters[parameter];
    const bool constant = p->init_form == WEFT_INIT_CONSTANT || p->init_std == 0;
    double four[4] = {1, 1, 1, 1};
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0 && !constant) {
            if (p->init_form == WEFT_INIT_UNIFORM) draw_four_uniform(four, job->seed, parameter, (first + i) / 4);
            else draw_four_normals(four, job->seed, parameter, (first + i) / 4);
        }
        out[i] = (float)(p->init_std * four[i % 4]);
    }
}

static weft_status draw_numbers(void *context, int32_t parameter, int64_t first, int64_t n, float *out,
                                weft_error *err) {
    (void)err;
    draw(out, context, parameter, first, n);
    return WEFT_OK;
}

/* Returns elements of a model's parameter, from its files or from the counter-based generator. */
static weft_status give_numbers(void *context, int32_t parameter, int64_t first, int64_t n, float *out,
                                weft_error *err) {
    const init_job *job = context;
    const weft_tensor *tensor =
        job->files == NULL ? NULL : weft_weights_tensor(job->files, &job->declared->parameters[parameter]);
    weft_status status = WEFT_OK;
    if (tensor == NULL) draw(out, job, parameter, first, n);
    for (int64_t at = 0; at < n && tensor != NULL && status == WEFT_OK; at += COMPARED)
        status = read_numbers(job->files, out + at, tensor, first + at, n - at < COMPARED ? n - at : COMPARED, err);
    return status;
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
        status = give_numbers((void *)(uintptr_t)job, parameter, first, n, out, err);
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
        const int64_t whole = (end + block - 1) / block * block, last = whole < p->numel ? whole : p->numel;
        const int64_t n = last - at < COMPARED ? last - at : COMPARED;
        status = take_stored(job, values, parameter, at, n, err);
        for (int64_t i = 0; i < n && status == WEFT_OK; i++)
            if (at + i >= row * width && at + i < end) sum += (double)values[i] * (double)values[i];
    }
    *out = (float)sqrt(sum);
    return status;
}

static weft_status fill_with_norms(const init_job *job, int32_t parameter, int64_t first, int64_t n, float *out,
                                   weft_error *err) {
    const int32_t of = job->declared->parameters[parameter].init_of;
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) status = norm_of_row(job, &out[i], of, first + i, err);
    return status;
}

/* Scans matrices that are packed while they are read, a second time: their row norms are those of the packed values. */
static weft_status open_packings(init_job *job, const weft_region *region, weft_error *err) {
    const weft_declared *declared = job->declared;
    const weft_numbers numbers = {give_numbers, job};
    weft_status status = WEFT_OK;
    job->packings = calloc((size_t)declared->n_parameters + 1, sizeof *job->packings);
    if (job->packings == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the packing of the weights");
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) {
        const int32_t of = declared->parameters[i].init_of;
        if (declared->parameters[i].init_form != WEFT_INIT_ROW_NORMS || !weft_packing_is_kept(region, i)) continue;
        if (!weft_parameter_is_packed(&declared->parameters[of]) || is_packed_shape(job, &declared->parameters[of]))
            continue;
        status = weft_packing_open(&job->packings[of], declared, of, &numbers, err);
    }
    return status;
}

static void close_packings(init_job *job) {
    for (int32_t i = 0; job->packings != NULL && i < job->declared->n_parameters; i++)
        weft_packing_close(&job->packings[i]);
    free(job->packings);
}

/* ---- fill ---- */

static weft_status fill_from_random(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype,
                                    void *out, weft_error *err) {
    enum { DRAWN = 4096 }; /* elements at once: complete blocks of any type */
    const init_job *job = context;
    float values[DRAWN];
    if (job->declared->parameters[parameter].init_form == WEFT_INIT_ROW_NORMS)
        return fill_with_norms(job, parameter, first, n, out, err);
    for (int64_t at = 0; at < n; at += DRAWN) {
        const int64_t some = n - at < DRAWN ? n - at : DRAWN;
        draw(values, context, parameter, first + at, some);
        (void)weft_convert((char *)out + weft_dtype_span(dtype, at), dtype, values, WEFT_F32, some);
    }
    return WEFT_OK;
}

weft_status weft_weights_init(const weft_region *region, uint64_t seed, bool added_alone, const weft_safetensors *files,
                              weft_error *err) {
    const weft_declared *declared = region->declared;
    init_job job = {seed, declared, files, NULL};
    weft_status status = WEFT_OK;
    const weft_numbers numbers = {draw_numbers, &job};
    int32_t n = 0, *drawn = malloc(((size_t)declared->n_parameters + 1) * sizeof *drawn);
    bool *is_packed = malloc(((size_t)declared->n_parameters + 1) * sizeof *is_packed);
    if (drawn == NULL || is_packed == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        if (added_alone && !declared->parameters[p].added) continue;
        is_packed[p] = weft_dtype_is_packed(weft_region_dtype(region, p));
        drawn[n++] = p;
    }
    if (status == WEFT_OK) status = open_packings(&job, region, err);
    if (status == WEFT_OK)
        status = weft_packing_fill(region, drawn, n, is_packed, &numbers, fill_from_random, &job, err);
    close_packings(&job);
    free(is_packed);
    free(drawn);
    return status;
}
