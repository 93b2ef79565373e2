/* host/program/make_plan.c: see make_plan.h. */
#include "program/make_plan.h"

#include "adapter/attach.h"
#include "adapter/stack.h"
#include "adapter/tensors.h"
#include "base/join.h"
#include "base/text.h"
#include "program/plugin_answers.h"
#include "program/save_place.h"
#include "program/budget.h"
#include "program/mode_plan.h"
#include "program/states.h"
#include "program/storage.h"
#include "plugin/call.h"
#include "plugin/enter.h"
#include "program/family.h"

#include <stdlib.h>

enum { ADAPTER_CONFIG_LIMIT = 16 << 20 };

/* What failed is what a key asks for. */
static weft_status blame_key(const weft_run *run, const char *section, const char *key, weft_status status,
                             const weft_error *why, const char *advice, weft_error *err) {
    (void)weft_config_reject(run->config, section, key, err, "cannot be used: %s%s", why->text, advice);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

static weft_status select_trained(weft_plan *plan, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_run *run = plan->run;
    const weft_status status = weft_declared_select(plan->declared, run->settings.train.trainable, &why);
    return status == WEFT_OK ? WEFT_OK : blame_key(run, "train", "trainable", status, &why, "", err);
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
                         ". Have the policy corrected, or choose another one: weft plugins list has them", err);
    return weft_run_located(run, WEFT_PART_POLICY, weft_error_set(err, status, "%s", why.text), err);
}

/* The key that names the directory of those that are continued. */
static const char *source_key(const weft_run *run) {
    return run->settings.adapter.use[0] != '\0' ? "use" : "from";
}

/* What an adapter's directory says of itself, for the plugin; the text is to be freed. */
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

/* Numbers that were learned on other weights mean nothing here, though their shapes fit. Missing weights are reported
 * where they are loaded. */
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
                              "(%s) was made on other weights than those in %s: set [model] path to its base, or "
                              "any_base = yes to take it all the same",
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

/* held: those that are continued; the others are new. */
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
    if (status != WEFT_OK) (void)weft_config_locate(run->config, "adapter", err); /* what is of all of them */
    free((void *)(uintptr_t)source.config_text);
    return status;
}

/* In the order in which they are listed. */
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

static weft_status declare_model(weft_plan *plan, weft_error *err) {
    const weft_run *run = plan->run;
    const weft_part *part = &run->parts[WEFT_PART_MODEL];
    weft_plugin_call call;
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/config.json", run->settings.model.path);
    weft_status status = WEFT_OK;
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_config_reject(run->config, "model", "path", err, "is longer than %zu bytes", sizeof path - 16);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = weft_declared_create_with(&plan->declared, run->host, weft_loaded_table(part->loaded, model), part->config,
                                       path, run->vocabulary.rows > 0 ? &run->vocabulary : NULL, err);
    status = weft_plugin_blame(weft_run_table(run, WEFT_PART_MODEL, model), status, err);
    status = weft_run_located(run, WEFT_PART_MODEL, weft_plugin_call_end(&call, status, err), err);
    if (status == WEFT_OK) weft_answers_note_model(plan);
    if (status == WEFT_OK) status = attach_adapters(plan, err);
    if (status == WEFT_OK) weft_answers_note_adapters(plan);
    if (status == WEFT_OK) status = select_trained(plan, err);
    if (status == WEFT_OK) status = weft_storage_choose(plan, err);
    if (status != WEFT_OK) return status;
    plan->declared->state_block = weft_states_block((weft_states)run->settings.optimizer.states);
    return lay_out_units(plan, err);
}

weft_status weft_plan_open(weft_plan *self, const weft_run *run, weft_error *err) {
    if (run->settings.train.weights == WEFT_STORED_BF16 && run->settings.train.precision != WEFT_PRECISION_BF16)
        return weft_config_reject(
            run->config, "train", "weights", err,
            "asks for weights in bf16, which are computed with in bf16 alone: set precision = bf16 "
            "in [train], too");
    self->run = run;
    self->dtype = weft_precision_dtype(&run->settings.train);
    return declare_model(self, err);
}

static void note_products(weft_plan *plan, const weft_graph_set *set) {
    for (int32_t g = 0; set != NULL && g < set->n_lengths * set->n_segments; g++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_reads(set->graphs[g], &n);
        for (int32_t i = 0; i < n; i++) plan->in_products[reads[i].parameter] |= reads[i].in_products;
    }
}

/* What is looked up and nothing else needs no copy in the type of products (compute.h). */
static weft_status note_all_products(weft_plan *plan, weft_error *err) {
    plan->in_products = calloc((size_t)plan->declared->n_parameters + 1, sizeof *plan->in_products);
    if (plan->in_products == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of parameters");
    note_products(plan, plan->train.graphs);
    note_products(plan, plan->evaluate.graphs);
    note_products(plan, plan->generate.graphs);
    return WEFT_OK;
}

static weft_graph_set_spec graphs_of_mode(const weft_plan *plan, int32_t mode, int32_t rows) {
    weft_graph_set_spec out = {.mode = mode,
                               .dtype = plan->dtype,
                               .rows = rows,
                               .n_lengths = plan->spec.n_lengths,
                               .seed = (uint64_t)plan->run->settings.run.seed};
    memcpy(out.lengths, plan->spec.lengths, sizeof out.lengths);
    return out;
}

/* What is packed is not trained, and multiplied as it is by devices that say so. */
static weft_status check_packed(const weft_plan *self, const weft_device_plugin *kernels, const weft_device *device,
                                weft_error *err) {
    const weft_run *run = self->run;
    const weft_parameter *parameters = self->declared->parameters;
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    const int32_t wanted = self->declared->packed_wanted;
    if (self->spec.training && wanted >= 0)
        return weft_config_reject(
            run->config, "train", "trainable", err,
            "asks to train '%s', which is stored in %s, and what is packed is never trained; name "
            "what else is to be: adapter, with [adapter] plugin = lora, head, or parameter names in which * stands "
            "for any text, as *norm.weight",
            parameters[wanted].name, weft_dtype_name(parameters[wanted].dtype));
    if (self->spec.training && self->base_is_trained)
        return weft_config_reject(run->config, "model", "base", err,
                                  "is how what is frozen is stored, and [train] trainable = %s trains every linear of "
                                  "the layers: %s; or name what else is to be trained, as *norm.weight or head, or "
                                  "take this line out",
                                  run->settings.train.trainable,
                                  self->declared->n_adapters > 0
                                      ? "set trainable = adapter, and the adapter is trained on it"
                                      : "add an adapter, [adapter] plugin = lora, which is trained on it");
    WEFT_PLUGIN_TELL(kernels, info, device, &info);
    for (int32_t p = 0; p < self->declared->n_parameters; p++) {
        const int32_t dtype = parameters[p].dtype;
        if (!weft_parameter_is_packed(&parameters[p]) || (info.packed >> dtype & 1u) != 0) continue;
        return weft_config_reject(
            run->config, "device", "plugin", err,
            "does not multiply what is stored in %s, as '%s' is; choose a device that does, as cpu, "
            "or a model that is not packed",
            weft_dtype_name(dtype), parameters[p].name);
    }
    return WEFT_OK;
}

/* The device computes in what is asked for. */
static weft_status check_precision(const weft_plan *self, const weft_device_plugin *kernels, const weft_device *device,
                                   weft_error *err) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    uint32_t types = 0;
    WEFT_PLUGIN_TELL(kernels, info, device, &info);
    types = info.types != 0 ? info.types : 1u << WEFT_F32 | 1u << WEFT_BF16;
    if ((types >> self->dtype & 1u) != 0) return WEFT_OK;
    return weft_config_reject(self->run->config, "train", "precision", err,
                              "is not what device %s (%s) computes in: choose fp32%s, or another [device] plugin",
                              weft_run_id(self->run, WEFT_PART_DEVICE), info.name,
                              (types >> WEFT_BF16 & 1u) != 0 ? " or bf16" : "");
}

/* What is new beside an adapter that is continued has learned nothing yet. */
static weft_status check_new(const weft_plan *self, weft_error *err) {
    const weft_run *run = self->run;
    const weft_stack stack = weft_stack_of(self->declared);
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (self->spec.training || !self->begins_adapters) return WEFT_OK;
    status = weft_stack_refuse(&stack, run->settings.adapter_from, &why);
    return blame_key(run, "adapter", source_key(run), status, &why, "", err);
}

/* Beside an adapter modules of the base are trained as a whole, or not. */
static weft_status check_modules(const weft_plan *self, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_status status = weft_adapter_check_whole(self->declared, &why);
    return status == WEFT_OK ? WEFT_OK : blame_key(self->run, "train", "trainable", status, &why, "", err);
}

weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err) {
    const weft_mode_plan_maker maker = {self, kernels, device};
    weft_status status = WEFT_OK;
    weft_graph_set_spec set = {0};
    self->spec = *spec;
    status = check_precision(self, kernels, device, err);
    if (status == WEFT_OK) status = check_packed(self, kernels, device, err);
    if (status == WEFT_OK) status = check_new(self, err);
    if (status == WEFT_OK && spec->training && !weft_plan_saves_base(self)) status = check_modules(self, err);
    if (status == WEFT_OK && spec->training) {
        set = graphs_of_mode(self, WEFT_MODE_TRAIN, spec->rows);
        status = weft_mode_plan_make(&maker, &self->train, &set, spec->micro_batches, err);
    }
    if (status == WEFT_OK && spec->evaluate_rows > 0) {
        set = graphs_of_mode(self, WEFT_MODE_EVALUATE, spec->evaluate_rows);
        status = weft_mode_plan_make(&maker, &self->evaluate, &set, 1, err);
    }
    if (status == WEFT_OK && spec->cache_rows > 0) {
        const weft_graph_set_spec one = {.mode = WEFT_MODE_GENERATE,
                                         .dtype = self->dtype,
                                         .rows = 1,
                                         .cache_rows = spec->cache_rows,
                                         .n_lengths = 1,
                                         .lengths = {spec->prompt_rows}};
        status = weft_mode_plan_make(&maker, &self->generate, &one, 1, err);
    }
    if (status == WEFT_OK) status = note_all_products(self, err);
    if (status != WEFT_OK) return status;
    weft_answers_note_programs(self);
    self->draws = self->train.graphs != NULL && weft_graph_set_draws(self->train.graphs);
    weft_save_place_decide(self, kernels, device);
    weft_plan_budget(self);
    return WEFT_OK;
}
