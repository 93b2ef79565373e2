/* host/program/storage.c: see storage.h. */
#include "program/storage.h"

#include <stdlib.h>

#include "model/packed.h"
#include "model/weights.h"

/* What [model] base asks for. */
static const struct {
    int32_t dtype; /* 0: as the model plugin and the files say */
    bool scaled_by_rows;
} bases[] = {[WEFT_BASE_AUTO] = {0, false},
             [WEFT_BASE_NF4] = {WEFT_NF4, false},
             [WEFT_BASE_NF4X64] = {WEFT_NF4X64, false},
             [WEFT_BASE_INT8] = {WEFT_I8X64, true},
             [WEFT_BASE_FP8] = {WEFT_F8X128, false},
             [WEFT_BASE_BF16] = {WEFT_BF16, false},
             [WEFT_BASE_FP16] = {WEFT_F16, false},
             [WEFT_BASE_FP32] = {WEFT_F32, false}};

typedef struct choosing {
    weft_plan *plan;
    weft_safetensors *files; /* NULL: none are read */
    int32_t base;            /* weft_base */
    bool *is_base;           /* [n_parameters] a linear of a block of the model's own, which lies as (out, in) */
    bool takes_trained;      /* the selection leaves nothing of the base frozen */
} choosing;

static bool is_below_blocks(const weft_declared *declared, int32_t module) {
    const int32_t blocks = declared->info.n_layers > 0 ? weft_declared_module(declared, declared->info.layer_path) : -1;
    return blocks >= 0 && weft_declared_below(declared, module, blocks);
}

static void mark_base(bool *is_base, const weft_declared *declared) {
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        is_base[i] = p->role == WEFT_WEIGHT_LINEAR && weft_parameter_is_matrix(p) && p->n_aliases == 0 && !p->added &&
                     is_below_blocks(declared, p->module);
    }
    for (int32_t i = 0; i < declared->n_weights; i++) {
        const weft_weight *weight = declared->weights[i];
        if (weight->transposed) is_base[weight->parameter] = false;
    }
}

static bool is_asked_for(const choosing *self, int32_t i) {
    const weft_parameter *p = &self->plan->declared->parameters[i];
    return self->is_base[i] && (!p->trainable || self->takes_trained);
}

static weft_status reject_base(const choosing *self, weft_error *err, const char *text) {
    return weft_config_reject(self->plan->run->config, "model", "base", err, "%s", text);
}

/* ---- what cannot be ---- */

/* Something is there to be stored so. Where all of it is named to be trained, it is for who trains to say that this
 * cannot be. */
static weft_status find_frozen(choosing *self, weft_error *err) {
    const weft_declared *declared = self->plan->declared;
    bool any = false, any_frozen = false;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        any = any || self->is_base[i];
        any_frozen = any_frozen || (self->is_base[i] && !declared->parameters[i].trainable);
    }
    if (!any) return reject_base(self, err, "finds no linears in this model's layers; take the line out");
    self->takes_trained = self->plan->base_is_trained = !any_frozen && self->base != WEFT_BASE_FP32;
    return WEFT_OK;
}

static weft_status check_rows(const choosing *self, const weft_parameter *p, weft_error *err) {
    const int64_t block = weft_dtype_block(WEFT_I8X64);
    char text[600];
    if (self->base != WEFT_BASE_INT8 || p->dims[1] % block == 0) return WEFT_OK;
    (void)snprintf(text, sizeof text,
                   "cannot hold '%s': its rows of %lld numbers are no whole blocks of %lld; nf4, nf4x64 and fp8 take "
                   "rows of any length",
                   p->name, (long long)p->dims[1], (long long)block);
    return reject_base(self, err, text);
}

/* Views of a parameter's rows begin where a block does. */
static weft_status check_slices(const choosing *self, weft_error *err) {
    const weft_declared *declared = self->plan->declared;
    for (int32_t i = 0; i < declared->n_weights; i++) {
        const weft_weight *weight = declared->weights[i];
        const weft_parameter *p = &declared->parameters[weight->parameter];
        char text[600];
        if (!weight->is_slice || weight->first * weight->in % weft_dtype_block(p->dtype) == 0) continue;
        (void)snprintf(text, sizeof text,
                       "cannot hold '%s': the model reads its rows from %lld on by themselves, and no block of %lld "
                       "numbers begins there; with nf4x64, fp8 or int8 blocks are shorter",
                       p->name, (long long)weight->first, (long long)weft_dtype_block(p->dtype));
        return reject_base(self, err, text);
    }
    return WEFT_OK;
}

/* What is stored in 16 bits is multiplied as it is. */
static weft_status check_half(const choosing *self, weft_error *err) {
    const int32_t dtype = bases[self->base].dtype;
    char text[200];
    if ((dtype != WEFT_BF16 && dtype != WEFT_F16) || dtype == self->plan->dtype) return WEFT_OK;
    (void)snprintf(text, sizeof text,
                   "is multiplied in %s alone: set [train] precision = %s, or base = nf4, nf4x64, int8 or fp8, which "
                   "are multiplied in any",
                   weft_dtype_name(dtype), weft_dtype_name(dtype));
    return reject_base(self, err, text);
}

/* config.json speaks of packed weights, and there are some. */
static weft_status check_said(const choosing *self, weft_error *err) {
    const weft_declared *declared = self->plan->declared;
    const bool fresh = self->plan->run->settings.model.start == WEFT_START_FRESH;
    bool any = false;
    for (int32_t i = 0; self->files != NULL && i < self->files->n_tensors; i++)
        any = any || self->files->tensors[i].joined != NULL;
    if (!declared->says_packed || any || (self->files == NULL && !fresh)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: quantization_config says that bitsandbytes has packed the weights, and %s. Set it to "
                          "null; [model] base = nf4, int8 or fp8 packs them while they are %s",
                          declared->config_path,
                          fresh ? "[model] start = fresh begins without any" : "its files have all of them in numbers",
                          fresh ? "drawn" : "read");
}

/* ---- what is ---- */

static const weft_tensor *tensor_of(const choosing *self, const weft_parameter *p) {
    return self->files == NULL ? NULL : weft_weights_tensor(self->files, p);
}

/* A tensor that its file holds packed stays so. */
static weft_status take_packed(const choosing *self, int32_t i, int32_t held, weft_error *err) {
    weft_declared *declared = self->plan->declared;
    weft_parameter *p = &declared->parameters[i];
    char text[600];
    if (self->base != WEFT_BASE_AUTO && bases[self->base].dtype != held) {
        (void)snprintf(
            text, sizeof text,
            "is not what the model's files hold: '%s' is stored in %s there; take the line out, or begin with "
            "the model that was packed",
            p->name, weft_dtype_name(held));
        return reject_base(self, err, text);
    }
    if (p->trainable && declared->packed_wanted < 0 && !self->takes_trained) declared->packed_wanted = i;
    p->trainable = false;
    p->dtype = held;
    return WEFT_OK;
}

static weft_status take_base(const choosing *self, int32_t i, weft_error *err) {
    weft_parameter *p = &self->plan->declared->parameters[i];
    const weft_status status = check_rows(self, p, err);
    if (status != WEFT_OK) return status;
    p->dtype = bases[self->base].dtype;
    p->scaled_by_rows = bases[self->base].scaled_by_rows;
    if (p->dtype != WEFT_F32) p->trainable = false;
    return WEFT_OK;
}

static bool is_narrow_in_files(const choosing *self, const weft_parameter *p) {
    const weft_tensor *tensor = tensor_of(self, p);
    return self->plan->dtype != WEFT_F32 && self->base != WEFT_BASE_FP32 && !p->trainable &&
           weft_parameter_is_matrix(p) && tensor != NULL && tensor->dtype == self->plan->dtype;
}

/* The logits are multiplied with numbers. */
static weft_status check_head(const choosing *self, const weft_parameter *p, int32_t held, weft_error *err) {
    const weft_declared *declared = self->plan->declared;
    const char *head = declared->info.head_path;
    if (held == 0 || head == NULL || p->module != weft_declared_module(declared, head)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: '%s' is stored in %s, and Weft reads the head as numbers alone. Allowed: F32, BF16 or "
                          "F16. Fix: quantize the model again without it, as llm_int8_skip_modules = [\"%s\"] of "
                          "transformers does, or take the model in numbers with [model] base = nf4 or int8",
                          self->plan->run->settings.model.path, p->name, weft_dtype_name(held), head);
}

static weft_status choose_one(const choosing *self, int32_t i, weft_error *err) {
    weft_parameter *p = &self->plan->declared->parameters[i];
    const weft_tensor *tensor = tensor_of(self, p);
    const int32_t held = tensor == NULL ? 0 : weft_packed_type(tensor);
    weft_status status = WEFT_OK;
    if (weft_parameter_is_packed(p)) return WEFT_OK; /* the model's own choice */
    status = check_head(self, p, held, err);
    if (status != WEFT_OK) return status;
    if (held != 0 && p->role == WEFT_WEIGHT_LINEAR && weft_parameter_is_matrix(p) && p->n_aliases == 0)
        return take_packed(self, i, held, err);
    if (bases[self->base].dtype != 0 && is_asked_for(self, i)) return take_base(self, i, err);
    if (is_narrow_in_files(self, p)) p->dtype = self->plan->dtype;
    return WEFT_OK;
}

static weft_status choose_all(choosing *self, weft_error *err) {
    const weft_declared *declared = self->plan->declared;
    weft_status status = WEFT_OK;
    mark_base(self->is_base, declared);
    status = check_said(self, err);
    if (status == WEFT_OK) status = check_half(self, err);
    if (status != WEFT_OK) return status;
    if (self->base != WEFT_BASE_AUTO) status = find_frozen(self, err);
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) status = choose_one(self, i, err);
    return status == WEFT_OK ? check_slices(self, err) : status;
}

/* Gains and biases too: a unit has one trained group. */
static void store_trained(weft_plan *plan) {
    if (plan->run->settings.train.weights != WEFT_STORED_BF16) return;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++)
        if (plan->declared->parameters[i].trainable) plan->declared->parameters[i].dtype = WEFT_BF16;
}

weft_status weft_storage_choose(weft_plan *plan, weft_error *err) {
    const weft_run *run = plan->run;
    choosing self = {.plan = plan, .base = (int32_t)run->settings.model.base};
    weft_status status = WEFT_OK;
    self.is_base = calloc((size_t)plan->declared->n_parameters + 1, sizeof *self.is_base);
    if (self.is_base == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    if (run->settings.model.start != WEFT_START_FRESH)
        (void)weft_weights_open(&self.files, plan->declared, run->settings.model.path, NULL);
    status = choose_all(&self, err);
    if (status == WEFT_OK) store_trained(plan);
    weft_safetensors_close(self.files);
    free(self.is_base);
    return status;
}
