/* host/plan/make_plan.c: see make_plan.h. */
#include "plan/make_plan.h"

#include "plan/budget.h"
#include "plan/stage.h"
#include "plan/states.h"
#include "plan/storage.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <stdlib.h>

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
    if (status == WEFT_OK) return WEFT_OK;
    (void)weft_plugin_blame(weft_run_table(run, WEFT_PART_POLICY, policy), status, &why);
    if (status == WEFT_E_PLUGIN)
        return blame_key(run, "policy", "plugin", status, &why,
                         ". Have the policy corrected, or choose another one: weft plugins list has them", err);
    return weft_run_located(run, WEFT_PART_POLICY, weft_error_set(err, status, "%s", why.text), err);
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
    status = weft_declared_create(&plan->declared, run->host, weft_loaded_table(part->loaded, model), part->config,
                                  path, err);
    status = weft_plugin_blame(weft_run_table(run, WEFT_PART_MODEL, model), status, err);
    status = weft_run_located(run, WEFT_PART_MODEL, weft_plugin_call_end(&call, status, err), err);
    if (status == WEFT_OK) status = select_trained(plan, err);
    if (status != WEFT_OK) return status;
    weft_storage_choose(plan);
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
    self->dtype = run->settings.train.precision == WEFT_PRECISION_BF16 ? WEFT_BF16 : WEFT_F32;
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
    weft_graph_set_spec out = {.mode = mode, .dtype = plan->dtype, .rows = rows, .n_lengths = plan->spec.n_lengths};
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
            "what else is to be: head, or parameter names in which * stands for any text, as "
            "*norm.weight",
            parameters[wanted].name, weft_dtype_name(parameters[wanted].dtype));
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

weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err) {
    const weft_stage_maker maker = {self, kernels, device};
    weft_status status = WEFT_OK;
    weft_graph_set_spec set = {0};
    self->spec = *spec;
    status = check_packed(self, kernels, device, err);
    if (status == WEFT_OK && spec->training) {
        set = graphs_of_mode(self, WEFT_MODE_TRAIN, spec->rows);
        status = weft_stage_make(&maker, &self->train, &set, spec->leaves, err);
    }
    if (status == WEFT_OK && spec->evaluate_rows > 0) {
        set = graphs_of_mode(self, WEFT_MODE_EVALUATE, spec->evaluate_rows);
        status = weft_stage_make(&maker, &self->evaluate, &set, 1, err);
    }
    if (status == WEFT_OK && spec->cache_rows > 0) {
        const weft_graph_set_spec one = {.mode = WEFT_MODE_GENERATE,
                                         .dtype = self->dtype,
                                         .rows = 1,
                                         .cache_rows = spec->cache_rows,
                                         .n_lengths = 1,
                                         .lengths = {spec->prompt_rows}};
        status = weft_stage_make(&maker, &self->generate, &one, 1, err);
    }
    if (status == WEFT_OK) status = note_all_products(self, err);
    if (status == WEFT_OK) weft_plan_budget(self);
    return status;
}
