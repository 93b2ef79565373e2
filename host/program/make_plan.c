/* host/program/make_plan.c: makes a plan: the model and its layout, then the programs of each mode, then the bytes. */
#include "program/plan.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "program/budget.h"

#include <stdlib.h>

/* ---- storage types ---- */

/* Of [model] base; 0: the type of the model plugin and the files. */
static const int32_t base_dtypes[] = {
    [WEFT_BASE_AUTO] = 0,          [WEFT_BASE_NF4] = WEFT_NF4,    [WEFT_BASE_NF4X64] = WEFT_NF4X64,
    [WEFT_BASE_INT8] = WEFT_I8X64, [WEFT_BASE_FP8] = WEFT_F8X128, [WEFT_BASE_BF16] = WEFT_BF16,
    [WEFT_BASE_FP16] = WEFT_F16,   [WEFT_BASE_FP32] = WEFT_F32,
};

typedef struct choosing {
    weft_plan *plan;
    weft_declared *declared;
    weft_safetensors *files; /* NULL: no files are read */
    int32_t base;            /* weft_base */
    int32_t dtype;           /* of the base; 0: as in the files */
    bool *is_base;           /* [n_parameters] a linear of the model's own blocks, stored as (out, in) */
    bool takes_trained;      /* [train] trainable leaves no base parameter frozen */
} choosing;

#define REJECT_BASE(self, err, ...) weft_config_reject((self)->plan->run->config, "model", "base", err, __VA_ARGS__)

static bool is_linear(const weft_parameter *p) {
    return p->role == WEFT_WEIGHT_LINEAR && weft_parameter_is_matrix(p) && p->n_aliases == 0;
}

static void mark_base(choosing *self) {
    const weft_declared *declared = self->declared;
    const int32_t blocks = declared->info.n_layers > 0 ? weft_declared_module(declared, declared->info.layer_path) : -1;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        self->is_base[i] = is_linear(p) && !p->added && blocks >= 0 && weft_declared_below(declared, p->module, blocks);
    }
    for (int32_t i = 0; i < declared->n_weights; i++)
        if (declared->weights[i]->transposed) self->is_base[declared->weights[i]->parameter] = false;
}

/* Fails if no parameter is a base parameter. If all of them are trained, check_packed reports that. */
static weft_status find_frozen(choosing *self, weft_error *err) {
    bool any = false, any_frozen = false;
    for (int32_t i = 0; i < self->declared->n_parameters; i++) {
        any = any || self->is_base[i];
        any_frozen = any_frozen || (self->is_base[i] && !self->declared->parameters[i].trainable);
    }
    if (!any) return REJECT_BASE(self, err, "finds no linears in this model's layers. Fix: remove the line");
    self->takes_trained = self->plan->base_is_trained = !any_frozen && self->base != WEFT_BASE_FP32;
    return WEFT_OK;
}

/* A view of a parameter's rows must begin at a block boundary. */
static weft_status check_slices(const choosing *self, weft_error *err) {
    for (int32_t i = 0; i < self->declared->n_weights; i++) {
        const weft_weight *weight = self->declared->weights[i];
        const weft_parameter *p = &self->declared->parameters[weight->parameter];
        if (!weight->is_slice || weight->first * weight->in % weft_dtype_block(p->dtype) == 0) continue;
        return REJECT_BASE(
            self, err,
            "cannot store '%s': the model reads its rows from %lld on separately, which is no start of a "
            "block of %lld numbers. Fix: nf4x64, fp8 or int8, whose blocks are shorter",
            p->name, (long long)weight->first, (long long)weft_dtype_block(p->dtype));
    }
    return WEFT_OK;
}

/* A 16-bit matrix is only multiplied in its own type. */
static weft_status check_half(const choosing *self, weft_error *err) {
    if ((self->dtype != WEFT_BF16 && self->dtype != WEFT_F16) || self->dtype == self->plan->dtype) return WEFT_OK;
    return REJECT_BASE(self, err,
                       "is multiplied in %s only. Fix: set [train] precision = %s, or base = nf4, nf4x64, int8 or fp8, "
                       "which are multiplied in any precision",
                       weft_dtype_name(self->dtype), weft_dtype_name(self->dtype));
}

/* Fails if config.json declares packed weights and the files contain none. */
static weft_status check_declared(const choosing *self, weft_error *err) {
    const bool fresh = self->plan->run->settings.model.start == WEFT_START_FRESH;
    bool any = false;
    for (int32_t i = 0; self->files != NULL && i < self->files->n_tensors; i++)
        any = any || self->files->tensors[i].joined != NULL;
    if (!self->declared->is_saved_packed || any || (self->files == NULL && !fresh)) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s: quantization_config declares weights packed by bitsandbytes, and %s. Fix: set it to null; "
        "[model] base = nf4, int8 or fp8 packs them while they are %s",
        self->declared->config_path,
        fresh ? "[model] start = fresh reads no weights" : "its files have unpacked ones only",
        fresh ? "drawn" : "read");
}

/* Keeps the packed type of a tensor in the files. */
static weft_status take_packed(const choosing *self, int32_t i, int32_t held, weft_error *err) {
    weft_declared *declared = self->declared;
    weft_parameter *p = &declared->parameters[i];
    if (self->base != WEFT_BASE_AUTO && self->dtype != held)
        return REJECT_BASE(
            self, err,
            "differs from the model's files: '%s' is stored in %s there. Fix: remove the line, or use the "
            "model that was packed",
            p->name, weft_dtype_name(held));
    if (p->trainable && declared->packed_wanted < 0 && !self->takes_trained) declared->packed_wanted = i;
    p->trainable = false;
    p->dtype = held;
    return WEFT_OK;
}

static weft_status take_base(const choosing *self, weft_parameter *p, weft_error *err) {
    const int64_t block = weft_dtype_block(WEFT_I8X64);
    if (self->base == WEFT_BASE_INT8 && p->dims[1] % block != 0)
        return REJECT_BASE(
            self, err,
            "cannot store '%s': its rows of %lld numbers are not complete blocks of %lld. Fix: nf4, nf4x64 "
            "or fp8, which allow rows of any length",
            p->name, (long long)p->dims[1], (long long)block);
    p->dtype = self->dtype;
    p->scaled_by_rows = self->base == WEFT_BASE_INT8;
    if (p->dtype != WEFT_F32) p->trainable = false;
    return WEFT_OK;
}

static weft_status choose_one(const choosing *self, int32_t i, weft_error *err) {
    weft_parameter *p = &self->declared->parameters[i];
    const weft_tensor *tensor = self->files == NULL ? NULL : weft_weights_tensor(self->files, p);
    const int32_t held = tensor == NULL ? 0 : weft_packed_type(tensor), compute = self->plan->dtype;
    const char *head = self->declared->info.head_path;
    if (weft_parameter_is_packed(p)) return WEFT_OK; /* selected by the model plugin */
    if (held != 0 && head != NULL && p->module == weft_declared_module(self->declared, head))
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: '%s' is stored in %s, and Weft reads only an unpacked head. Allowed: F32, BF16 or "
                              "F16. Fix: quantize the model again without it, as llm_int8_skip_modules = [\"%s\"] of "
                              "transformers does, or use the unpacked model with [model] base = nf4 or int8",
                              self->plan->run->settings.model.path, p->name, weft_dtype_name(held), head);
    if (held != 0 && is_linear(p)) return take_packed(self, i, held, err);
    if (self->dtype != 0 && self->is_base[i] && (!p->trainable || self->takes_trained)) return take_base(self, p, err);
    if (compute != WEFT_F32 && self->base != WEFT_BASE_FP32 && !p->trainable && weft_parameter_is_matrix(p) &&
        tensor != NULL && tensor->dtype == compute)
        p->dtype = compute; /* stored in 16 bits in the files */
    return WEFT_OK;
}

/* Sets the parameters' dtypes, after the selection of trained parameters and before the layout. Missing or malformed
 * files are treated as unknown here; the loader reports them. [train] weights = bf16 also holds for gains and biases,
 * because a unit has one trained group. */
static weft_status choose_storage(weft_plan *plan, weft_error *err) {
    const weft_settings *settings = &plan->run->settings;
    weft_declared *declared = plan->declared;
    const int32_t base = (int32_t)settings->model.base;
    choosing self = {.plan = plan, .declared = declared, .base = base, .dtype = base_dtypes[base]};
    weft_status status = WEFT_OK;
    self.is_base = weft_alloc(declared->n_parameters, sizeof *self.is_base);
    if (settings->model.start != WEFT_START_FRESH)
        (void)weft_weights_open(&self.files, declared, settings->model.path, NULL);
    mark_base(&self);
    status = check_declared(&self, err);
    if (status == WEFT_OK) status = check_half(&self, err);
    if (status == WEFT_OK && self.base != WEFT_BASE_AUTO) status = find_frozen(&self, err);
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) status = choose_one(&self, i, err);
    if (status == WEFT_OK) status = check_slices(&self, err);
    for (int32_t i = 0; i < declared->n_parameters && settings->train.weights == WEFT_STORED_BF16; i++)
        if (declared->parameters[i].trainable) declared->parameters[i].dtype = WEFT_BF16;
    weft_safetensors_close(self.files);
    free(self.is_base);
    return status;
}

/* ---- the model ---- */

enum { ADAPTER_CONFIG_LIMIT = 16 << 20 };

/* Returns status; reports a failure at the key that caused it. */
static weft_status blame_key(const weft_run *run, const char *section, const char *key, weft_status status,
                             const weft_error *why, const char *advice, weft_error *err) {
    if (status == WEFT_OK) return WEFT_OK;
    (void)weft_config_reject(run->config, section, key, err, "cannot be used: %s%s", why->text, advice);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

static weft_status select_trained(weft_plan *plan, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_run *run = plan->run;
    weft_status status = WEFT_OK;
    /* trainable = auto has the names of modules_to_save */
    if (run->trained != NULL) status = weft_adapter_check_modules(plan->declared, run->settings.adapter_from, err);
    if (status != WEFT_OK) return status;
    status = weft_declared_select(plan->declared, run->settings.train.trainable, &why);
    return blame_key(run, "train", "trainable", status, &why, "", err);
}

static weft_status lay_out_units(weft_plan *plan, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_run *run = plan->run;
    const weft_status status = weft_layout_create(&plan->layout, plan->declared, run->host,
                                                  weft_run_table(run, WEFT_PART_POLICY, policy),
                                                  run->parts[WEFT_PART_POLICY].config, &why);
    if (status == WEFT_OK) weft_answers_note_units(plan);
    if (status == WEFT_OK) return WEFT_OK;
    (void)weft_plugin_blame(weft_run_table(run, WEFT_PART_POLICY, policy), status, &why);
    if (status == WEFT_E_PLUGIN)
        return blame_key(run, "policy", "plugin", status, &why,
                         ". Correct the policy, or select another one of those in weft plugins list", err);
    return weft_run_located(run, WEFT_PART_POLICY, weft_error_set(err, status, "%s", why.text), err);
}

/* Returns the key that names the directory of the continued adapters. */
static const char *source_key(const weft_run *run) {
    return run->settings.adapter.use[0] != '\0' ? "use" : "from";
}

/* Reads the adapter's own configuration for the plugin. The caller frees config_text. */
static weft_status read_source(weft_adapter_source *out, char *path, const weft_run *run, const weft_stack *stack,
                               const weft_held *held, int32_t adapter, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    char *text = NULL, place[WEFT_PATH_BYTES];
    size_t bytes = 0;
    json_t *json = NULL; /* parsed here so that each adapter plugin gets strict JSON */
    weft_status status = weft_stack_source(place, stack, held, adapter, run->settings.adapter_from, &why);
    if (status == WEFT_OK) status = weft_path_join(path, place, WEFT_ADAPTER_CONFIG, &why);
    if (status == WEFT_OK) status = weft_text_read(&text, &bytes, path, ADAPTER_CONFIG_LIMIT, &why);
    if (status == WEFT_OK) status = weft_json_parse(&json, text, bytes, 0, path, &why);
    json_decref(json);
    if (status != WEFT_OK) free(text);
    if (status != WEFT_OK) return blame_key(run, "adapter", source_key(run), status, &why, "", err);
    out->struct_size = (uint32_t)sizeof *out;
    out->config_path = path;
    out->config_text = text;
    out->config_bytes = bytes;
    return WEFT_OK;
}

/* Fails if the adapter was trained on other base weights. The loader reports missing weights. */
static weft_status check_origin(weft_plan *plan, weft_error *err) {
    const weft_run *run = plan->run;
    weft_adapter_origin of = {0}, now = {0};
    weft_error why = WEFT_ERROR_INIT;
    bool same = true;
    weft_status status = weft_origin_load(&of, run->settings.adapter_from, err);
    if (status != WEFT_OK || run->settings.model.start == WEFT_START_FRESH || run->settings.adapter.any_base)
        return status;
    status = weft_base_compare(&same, &now, &of, run->settings.model.path, &why);
    if (status == WEFT_E_SYSTEM) return weft_error_set(err, status, "%s", why.text);
    if (status == WEFT_OK && same) weft_plan_set_base(plan, &now);
    if (status != WEFT_OK || same) return WEFT_OK;
    return weft_config_reject(run->config, "adapter", source_key(run), err,
                              "(%s) was made on other weights than those in %s. Fix: set [model] path to its base, or "
                              "any_base = yes to use it anyway",
                              run->settings.adapter_from, run->settings.model.path);
}

void weft_plan_set_base(weft_plan *plan, const weft_adapter_origin *from) {
    for (int32_t i = 0; i < plan->declared->n_adapters; i++) {
        memcpy(plan->origins[i].base, from->base, sizeof from->base);
        memcpy(plan->origins[i].files, from->files, sizeof from->files);
    }
}

static weft_status note_origins(weft_plan *plan, weft_error *err) {
    const weft_run *run = plan->run;
    const int32_t n = plan->declared->n_adapters;
    weft_adapter_origin *home = n > 0 ? &plan->origins[weft_stack_home(plan->declared)] : NULL;
    for (int32_t i = 0; i < n; i++) {
        const weft_plugin *plugin = run->parts[WEFT_PART_ADAPTER + i].loaded->plugin;
        weft_adapter_origin *origin = &plan->origins[i];
        (void)snprintf(origin->plugin, sizeof origin->plugin, "%s", plugin->id);
        (void)snprintf(origin->version, sizeof origin->version, "%s", plugin->version);
        if (n > 1) (void)snprintf(home->all[home->n_all++], sizeof home->all[0], "%s", plugin->id);
    }
    return n > 0 && run->settings.adapter_from[0] != '\0' ? check_origin(plan, err) : WEFT_OK;
}

/* held: the continued adapters; the others are new. */
static weft_status attach_adapter(weft_plan *plan, const weft_stack *stack, const weft_held *held, int32_t adapter,
                                  weft_error *err) {
    const weft_run *run = plan->run;
    const weft_part *part = &run->parts[WEFT_PART_ADAPTER + adapter];
    const bool continued = held->has[adapter];
    weft_adapter_source source = {0};
    weft_plugin_call call;
    char path[WEFT_PATH_BYTES];
    weft_status status = continued ? read_source(&source, path, run, stack, held, adapter, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = weft_adapter_attach(plan->declared, run->host, stack->plugins[adapter], part->config,
                                 continued ? &source : NULL, err);
    status = weft_run_located(run, WEFT_PART_ADAPTER + adapter, weft_plugin_call_end(&call, status, err), err);
    if (status != WEFT_OK) (void)weft_config_locate(run->config, "adapter", err);
    free((void *)(uintptr_t)source.config_text);
    return status;
}

static weft_status attach_adapters(weft_plan *plan, weft_error *err) {
    const weft_run *run = plan->run;
    weft_stack stack = {{NULL}, 0};
    weft_held held = {.n = 0};
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    for (int32_t part = WEFT_PART_ADAPTER; part < WEFT_N_PARTS && run->parts[part].loaded != NULL; part++)
        stack.plugins[stack.n++] = weft_loaded_table(run->parts[part].loaded, adapter);
    if (stack.n > 0 && run->settings.adapter_from[0] != '\0')
        status = weft_stack_held(&held, &stack, run->settings.adapter_from, &why);
    if (status != WEFT_OK) return blame_key(run, "adapter", source_key(run), status, &why, "", err);
    plan->begins_adapters = held.n > 0 && held.n < stack.n;
    for (int32_t i = 0; i < stack.n && status == WEFT_OK; i++) status = attach_adapter(plan, &stack, &held, i, err);
    return status == WEFT_OK ? note_origins(plan, err) : status;
}

weft_status weft_plan_open(weft_plan *plan, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_MODEL];
    weft_plugin_call call;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/config.json", run->settings.model.path);
    weft_status status = WEFT_OK;
    if (run->settings.train.weights == WEFT_STORED_BF16 && run->settings.train.precision != WEFT_PRECISION_BF16)
        return weft_config_reject(run->config, "train", "weights", err,
                                  "requires computation in bf16. Fix: set [train] precision = bf16");
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_config_reject(run->config, "model", "path", err, "is longer than %zu bytes", sizeof path - 16);
    plan->run = run;
    plan->dtype = weft_precision_dtype(run->settings.train.precision);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = weft_declared_create(&plan->declared, run->host, weft_loaded_table(part->loaded, model), part->config,
                                  path, run->vocabulary.rows > 0 ? &run->vocabulary : NULL, err);
    status = weft_plugin_blame(weft_run_table(run, WEFT_PART_MODEL, model), status, err);
    status = weft_run_located(run, WEFT_PART_MODEL, weft_plugin_call_end(&call, status, err), err);
    if (status == WEFT_OK) weft_answers_note_model(plan);
    if (status == WEFT_OK) status = attach_adapters(plan, err);
    if (status == WEFT_OK) weft_answers_note_adapters(plan);
    if (status == WEFT_OK) status = select_trained(plan, err);
    if (status == WEFT_OK) status = choose_storage(plan, err);
    if (status != WEFT_OK) return status;
    /* It depends only on the key, which is known before the optimizer declares its states. */
    if (run->settings.optimizer.states == WEFT_STATES_8BIT)
        plan->declared->state_block = weft_dtype_block(WEFT_DYN8X256);
    return lay_out_units(plan, err);
}

/* Notes what the graphs of all modes need. A parameter that only embedding lookups read needs no compute copy
 * (budget.h). */
static void note_graphs(weft_plan *plan) {
    const weft_graph_set *const sets[] = {plan->train.graphs, plan->evaluate.graphs, plan->generate.graphs};
    plan->in_products = weft_alloc(plan->declared->n_parameters, sizeof *plan->in_products);
    plan->table_rows = weft_plan_table_rows(&plan->spec);
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
        for (int32_t g = 0; sets[k] != NULL && g < sets[k]->n_lengths * sets[k]->n_segments; g++) {
            int32_t n = 0;
            const weft_graph_read *reads = weft_graph_reads(sets[k]->graphs[g], &n);
            const weft_graph_sizes *sizes = weft_graph_size(sets[k]->graphs[g]);
            for (int32_t i = 0; i < n; i++) plan->in_products[reads[i].parameter] |= reads[i].in_products;
            plan->table_rows = weft_larger(plan->table_rows, sizes->table_rows);
            plan->draws |= k == 0 && sizes->draws;
        }
}

/* Packed parameters cannot be trained. */
static weft_status check_packed(const weft_plan *self, weft_error *err) {
    const weft_run *run = self->run;
    const int32_t wanted = self->declared->packed_wanted;
    const weft_parameter *p = &self->declared->parameters[wanted < 0 ? 0 : wanted];
    if (self->spec.training && wanted >= 0)
        return weft_config_reject(
            run->config, "train", "trainable", err,
            "trains '%s', which is stored in %s, and packed parameters cannot be trained. Fix: name "
            "others: adapter, with [adapter] plugin = lora, head, or parameter names with * for any "
            "text, as *norm.weight",
            p->name, weft_dtype_name(p->dtype));
    if (self->spec.training && self->base_is_trained)
        return weft_config_reject(
            run->config, "model", "base", err,
            "is the storage type of frozen linears, and [train] trainable = %s trains every linear "
            "of the layers. Fix: %s; or name other trained parameters, as *norm.weight or head, or remove this line",
            run->settings.train.trainable,
            self->declared->n_adapters > 0 ? "set trainable = adapter, which trains the adapter on the frozen model"
                                           : "add an adapter, [adapter] plugin = lora, which is trained on it");
    return WEFT_OK;
}

/* Fails if the device does not compute in [train] precision or does not multiply a packed type. */
static weft_status check_device(const weft_plan *self, const weft_device_plugin *kernels, const weft_device *device,
                                weft_error *err) {
    const weft_config *config = self->run->config;
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    uint32_t types = 0;
    WEFT_PLUGIN_NOTIFY(kernels, info, device, &info);
    types = info.types != 0 ? info.types : 1u << WEFT_F32 | 1u << WEFT_BF16;
    if ((types >> self->dtype & 1u) == 0)
        return weft_config_reject(config, "train", "precision", err,
                                  "is not supported by device %s (%s). Allowed: fp32%s. Fix: one of these, or another "
                                  "[device] plugin",
                                  weft_run_id(self->run, WEFT_PART_DEVICE), info.name,
                                  (types >> WEFT_BF16 & 1u) != 0 ? ", bf16" : "");
    for (int32_t i = 0; i < self->declared->n_parameters; i++) {
        const weft_parameter *p = &self->declared->parameters[i];
        if (!weft_parameter_is_packed(p) || (info.packed >> p->dtype & 1u) != 0) continue;
        return weft_config_reject(
            config, "device", "plugin", err,
            "does not multiply weights stored in %s, as '%s' is. Fix: a device that does, as cpu, "
            "or a model that is not packed",
            weft_dtype_name(p->dtype), p->name);
    }
    return WEFT_OK;
}

/* Fails if a new adapter would be used without training. */
static weft_status check_new(const weft_plan *self, weft_error *err) {
    const weft_run *run = self->run;
    const weft_stack stack = weft_stack_of(self->declared);
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (self->spec.training || !self->begins_adapters) return WEFT_OK;
    status = weft_stack_refuse(&stack, run->settings.adapter_from, &why);
    return blame_key(run, "adapter", source_key(run), status, &why, "", err);
}

weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_graph_spec graphs = {.mode = WEFT_MODE_TRAIN,
                              .dtype = self->dtype,
                              .rows = spec->rows,
                              .seed = (uint64_t)self->run->settings.run.seed,
                              .kernels = kernels,
                              .device = device};
    self->spec = *spec;
    status = check_packed(self, err);
    if (status == WEFT_OK) status = check_device(self, kernels, device, err);
    if (status == WEFT_OK) status = check_new(self, err);
    if (status == WEFT_OK && spec->training && !weft_plan_saves_base(self)) /* base modules: completely or not at all */
        status =
            blame_key(self->run, "train", "trainable", weft_adapter_check_whole(self->declared, &why), &why, "", err);
    if (status == WEFT_OK && spec->training)
        status =
            weft_mode_plan_make(self, &self->train, &graphs, spec->lengths, spec->n_lengths, spec->micro_batches, err);
    graphs.mode = WEFT_MODE_EVALUATE;
    graphs.rows = spec->evaluate_rows;
    if (status == WEFT_OK && spec->evaluate_rows > 0)
        status = weft_mode_plan_make(self, &self->evaluate, &graphs, spec->lengths, spec->n_lengths, 1, err);
    graphs.mode = WEFT_MODE_GENERATE;
    graphs.rows = 1;
    graphs.cache_rows = spec->cache_rows;
    if (status == WEFT_OK && spec->cache_rows > 0)
        status = weft_mode_plan_make(self, &self->generate, &graphs, &spec->prompt_rows, 1, 1, err);
    if (status != WEFT_OK) return status;
    note_graphs(self);
    weft_answers_note_programs(self);
    weft_save_place_decide(self, kernels, device);
    weft_plan_budget(self);
    return WEFT_OK;
}
