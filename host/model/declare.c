/* host/model/declare.c: creates a declared model from its config.json. builder.c fills the module tree, and select.c
 * selects the trained parameters. */
#include "model/declare.h"

#include "base/alloc.h"
#include "base/text.h"
#include "model/config_json.h"
#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_quantization_take(bool *taken, char **text, size_t *bytes, const char *path, weft_error *err) {
    static const char key[] = "quantization_config";
    json_t *config = NULL;
    const json_t *packing = NULL, *method = NULL;
    const weft_status status = weft_json_parse(&config, *text, *bytes, 0, path, err);
    if (status != WEFT_OK) return status;
    packing = json_object_get(config, key);
    method = json_object_get(packing, "quant_method"); /* missing in early releases, which had only 8 bits */
    if (method != NULL) *taken = json_is_string(method) && strcmp(json_string_value(method), "bitsandbytes") == 0;
    else
        *taken = json_is_true(json_object_get(packing, "load_in_8bit")) ||
                 json_is_true(json_object_get(packing, "load_in_4bit"));
    json_decref(config);
    return *taken ? weft_config_json_remove(text, bytes, key, err) : WEFT_OK;
}

enum { CONFIG_LIMIT = 16 << 20 };

/* Checks that the declaration is complete, after `declare` has returned. */
static weft_status check_whole(weft_declared *self, weft_error *err) {
    const weft_model_info *info = &self->info;
    if (self->n_parameters == 0 || self->n_segments == 0 || self->carry_width == 0)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "the model plugin declares %d parameters, %d segments and a carry of width %lld. Allowed: "
            "at least 1 of each",
            self->n_parameters, self->n_segments, (long long)self->carry_width);
    if (info->vocab_size < 1 || info->vocab_size > INT32_MAX || info->max_context < 1)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the model plugin returns vocabulary %lld and context %lld. Allowed: at least 1, and a "
                              "vocabulary below 2^31",
                              (long long)info->vocab_size, (long long)info->max_context);
    if (info->n_layers > 0 && (info->layer_path == NULL || weft_declared_module(self, info->layer_path) < 0))
        return weft_error_set(err, WEFT_E_PLUGIN, "the model plugin returns %lld blocks below '%s', which is no module",
                              (long long)info->n_layers, info->layer_path == NULL ? "" : info->layer_path);
    if (info->head_path != NULL && weft_declared_module(self, info->head_path) < 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "the model plugin returns '%s' as its head, which is no module",
                              info->head_path);
    if (self->vocabulary.rows != 0 && self->vocabulary.rows != info->vocab_size)
        return weft_error_set(
            err, WEFT_E_UNSUPPORTED,
            "the model plugin returns a vocabulary of %lld, and vocab_size of config.json is %lld; it "
            "cannot get rows for added tokens",
            (long long)info->vocab_size, (long long)self->vocabulary.rows);
    return WEFT_OK;
}

/* Builds the text of config.json that the plugin reads, with the new vocabulary. */
static weft_status set_vocabulary(weft_declared *self, const weft_vocabulary *vocabulary, weft_error *err) {
    char rows[32], pad[16];
    const weft_json_change changes[] = {{"vocab_size", rows}, {"pad_token_id", pad}};
    (void)snprintf(rows, sizeof rows, "%lld", (long long)vocabulary->rows);
    (void)snprintf(pad, sizeof pad, "%d", (int)vocabulary->pad);
    self->vocabulary = *vocabulary;
    return weft_config_json_change(&self->config_text, &self->config_bytes, changes, vocabulary->pad < 0 ? 1 : 2, err);
}

weft_status weft_declared_create(weft_declared **out, const weft_host *host, const weft_model_plugin *plugin,
                                 const void *plugin_config, const char *config_path, const weft_vocabulary *vocabulary,
                                 weft_error *err) {
    weft_model_source source = {(uint32_t)sizeof source, 0, config_path, NULL, 0};
    weft_declared *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    if (err != NULL) err->text[0] = '\0';
    self->plugin = plugin;
    self->packed_wanted = -1;
    self->config_path = weft_strdup(config_path);
    status = weft_text_read(&self->config_text, &self->config_bytes, config_path, CONFIG_LIMIT, err);
    if (status == WEFT_OK)
        status =
            weft_quantization_take(&self->is_saved_packed, &self->config_text, &self->config_bytes, config_path, err);
    if (status == WEFT_OK && vocabulary != NULL) status = set_vocabulary(self, vocabulary, err);
    if (status != WEFT_OK) goto done;
    source.config_text = self->config_text;
    source.config_bytes = self->config_bytes;
    WEFT_PLUGIN_CALL(status, plugin, create, err, &self->model, host, plugin_config, &source);
    if (status == WEFT_OK && self->model == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN, "it returned WEFT_OK from its create without an object");
    if (status == WEFT_OK) status = weft_builder_run(self, err);
    if (status != WEFT_OK) goto done;
    self->info.struct_size = (uint32_t)sizeof self->info;
    WEFT_PLUGIN_NOTIFY(plugin, info, self->model, &self->info);
    status = check_whole(self, err);
done:
    if (status == WEFT_OK) *out = self;
    else weft_declared_destroy(self);
    return status;
}

void weft_declared_destroy(weft_declared *declared) {
    if (declared == NULL) return;
    for (int32_t i = declared->n_adapters - 1; i >= 0; i--)
        if (declared->adapters[i].adapter != NULL)
            WEFT_PLUGIN_NOTIFY(declared->adapters[i].plugin, destroy, declared->adapters[i].adapter);
    if (declared->model != NULL) WEFT_PLUGIN_NOTIFY(declared->plugin, destroy, declared->model);
    for (int32_t i = 0; i < declared->n_modules; i++) {
        free(declared->modules[i]->path);
        free(declared->modules[i]->name);
        free(declared->modules[i]->class_name);
        free(declared->modules[i]);
    }
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        weft_parameter *parameter = &declared->parameters[i];
        for (int32_t k = 0; k < parameter->n_aliases; k++) free(parameter->aliases[k]);
        free(parameter->aliases);
        free(parameter->name);
    }
    for (int32_t i = 0; i < declared->n_weights; i++) free(declared->weights[i]);
    for (int32_t i = 0; i < declared->n_tables; i++) {
        free(declared->tables[i]->name);
        free(declared->tables[i]);
    }
    for (int32_t i = 0; i < declared->n_segments; i++) free(declared->segments[i].name);
    weft_lookup_free(&declared->modules_by_path);
    weft_lookup_free(&declared->parameters_by_name);
    weft_lookup_free(&declared->segments_by_name);
    free(declared->modules);
    free(declared->parameters);
    free(declared->weights);
    free(declared->tables);
    free(declared->segments);
    free(declared->sites);
    free(declared->config_path);
    free(declared->config_text);
    free(declared);
}

int32_t weft_declared_find(const weft_declared *declared, const char *name) {
    return weft_lookup_find(&declared->parameters_by_name, name);
}

int32_t weft_declared_module(const weft_declared *declared, const char *path) {
    return weft_lookup_find(&declared->modules_by_path, path);
}

bool weft_declared_below(const weft_declared *declared, int32_t module, int32_t ancestor) {
    while (module >= 0 && module != ancestor) module = declared->modules[module]->parent;
    return module >= 0 && module == ancestor;
}

int64_t weft_declared_numel(const weft_declared *declared, bool trainable_only) {
    int64_t numel = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (!trainable_only || declared->parameters[i].trainable) numel += declared->parameters[i].numel;
    return numel;
}
