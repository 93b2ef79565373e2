/* plugins/adapter/lora/peft.c: reads and writes the adapter_config.json of a LoRA. A PEFT option that this adapter does
 * not support fails with its key, because ignoring it would change the computation. */
#include "../common/source.h"
#include "lora.h"
#include <stdlib.h>
#include <strings.h>

/* ---- reading ---- */

typedef struct reading {
    const weft_adapter_source *source;
    json_t *config;
    weft_error *err;
} reading;

static weft_status refuse(const reading *self, const char *key, const char *problem) {
    return source_refuse(self->source, self->config, key, problem, self->err);
}

/* The keys that are read here, and keys that only initialize a new adapter or belong to a rejected key. */
static const char known[] = "r,lora_alpha,lora_dropout,bias,use_rslora,use_dora,exclude_modules,init_lora_weights,"
                            "layers_to_transform,layers_pattern,rank_pattern,alpha_pattern,"
                            "loftq_config,eva_config,corda_config,lora_ga_config,megatron_core,qalora_group_size,"
                            "runtime_config";

/* True for PEFT's initializations that also change the base each time the adapter is loaded. */
static int changes_base(const char *init) {
    static const char *const forms[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; init != NULL && i < sizeof forms / sizeof *forms; i++)
        if (strncasecmp(init, forms[i], strlen(forms[i])) == 0) return 1;
    return 0;
}

static weft_status check_rest(const reading *self) {
    static const struct {
        const char *key, *problem;
    } refused[] = {
        {"fan_in_fan_out", "the matrices of this model are stored as (out, in). Allowed: false"},
        {"lora_bias", "B has no bias in Weft. Allowed: false"},
        {"layer_replication", "Weft does not repeat blocks. Allowed: null"},
        {"trainable_token_indices",
         "Weft trains all rows of an embedding or no row. Allowed: null. Fix: merge the adapter into its base with "
         "PEFT (merge_and_unload) and use that model, or train the table as one of modules_to_save"},
        {"target_parameters", "Weft adapts weights of linears only. Allowed: null"},
        {"use_qalora", "A reads every element of its input in Weft. Allowed: false"},
        {"alora_invocation_tokens", "Weft does not switch an adapter on within a text. Allowed: null"},
        {"megatron_config", "the layers are those of another trainer. Allowed: null"}};
    const char *bias = json_string_value(json_object_get(self->config, "bias"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!source_says_nothing(json_object_get(self->config, refused[i].key)))
            return refuse(self, refused[i].key, refused[i].problem);
    if (changes_base(json_string_value(json_object_get(self->config, "init_lora_weights"))))
        return refuse(self, "init_lora_weights",
                      "this form also changes the weights of the base, which Weft does not. Allowed: true, false, "
                      "gaussian and others that leave the base as it is. Fix: have PEFT convert the adapter into a "
                      "plain LoRA (path_initial_model_for_weight_conversion)");
    if (bias != NULL && strcmp(bias, "none") != 0)
        return refuse(self, "bias", "Weft trains biases with an adapter as modules_to_save. Allowed: \"none\"");
    return source_check_keys(self->config, known, self->source, self->err);
}

static int lists(const json_t *list, const char *text) {
    for (size_t i = 0; text != NULL && i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item != NULL && strcmp(item, text) == 0) return 1;
    }
    return 0;
}

/* Joins the strings or numbers of a list with commas, without those of another list. NULL: no memory. */
static char *join_list(const json_t *list, const json_t *without) {
    char *all = strdup("");
    for (size_t i = 0; all != NULL && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        char number[32] = "", *longer = NULL;
        const char *text = json_is_string(item) ? json_string_value(item) : number;
        if (lists(without, json_string_value(item))) continue;
        if (json_is_integer(item)) (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(item));
        else if (!json_is_string(item)) text = "";
        longer = malloc(strlen(all) + strlen(text) + 2);
        if (longer != NULL) (void)sprintf(longer, "%s%s%s", all, *all == 0 ? "" : ",", text);
        free(all);
        all = longer;
    }
    return all;
}

static int is_list_of_names(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) return 0;
    return json_is_array(list);
}

/* PEFT takes an empty list of layers for all. */
static weft_status read_layers(lora_modules *self, const reading *from) {
    const json_t *layers = json_object_get(from->config, "layers_to_transform");
    char number[32];
    int fits = json_is_array(layers);
    for (size_t i = 0; i < json_array_size(layers); i++) fits = fits && json_is_integer(json_array_get(layers, i));
    (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(layers));
    if (json_is_integer(layers)) self->layers = strdup(number);
    else if (source_says_nothing(layers)) self->layers = strdup("all");
    else if (fits) self->layers = join_list(layers, NULL);
    else return refuse(from, "layers_to_transform", "not valid. Allowed: null, a block's number, or a list of them");
    return WEFT_OK;
}

static weft_status read_wanted(lora_modules *self, const reading *from) {
    const json_t *modules = json_object_get(from->config, "target_modules");
    const json_t *below = json_object_get(from->config, "layers_pattern");
    const int is_text = json_is_string(modules),
              is_all = is_text && strcmp(json_string_value(modules), "all-linear") == 0;
    if (!is_text && (!is_list_of_names(modules) || json_array_size(modules) == 0))
        return refuse(from, "target_modules", "not valid. Allowed: a list of names, or one regular expression");
    /* PEFT does not adapt completely trained modules. */
    self->names = is_text ? strdup(is_all ? "all-linear" : "")
                          : join_list(modules, json_object_get(from->config, "modules_to_save"));
    self->regex = strdup(is_text && !is_all ? json_string_value(modules) : "");
    if (!source_says_nothing(below) && !json_is_string(below) && !is_list_of_names(below))
        return refuse(from, "layers_pattern", "not valid. Allowed: null, a name, or a list of names");
    self->layers_pattern = json_is_string(below) ? strdup(json_string_value(below)) : join_list(below, NULL);
    return read_layers(self, from);
}

static weft_status read_left_out(lora_modules *self, const reading *from) {
    const json_t *modules = json_object_get(from->config, "exclude_modules");
    const int is_text = json_is_string(modules);
    if (!source_says_nothing(modules) && !is_text && !is_list_of_names(modules))
        return refuse(from, "exclude_modules", "not valid. Allowed: null, a list of names, or one regular expression");
    self->exclude = is_text ? strdup("") : join_list(modules, NULL);
    self->exclude_regex = strdup(is_text ? json_string_value(modules) : "");
    return WEFT_OK;
}

static weft_status read_modules(lora_modules *self, const reading *from, const char *source) {
    weft_status status = read_wanted(self, from);
    if (status == WEFT_OK) status = read_left_out(self, from);
    if (status == WEFT_OK)
        status = patterns_of_file(&self->ranks, PATTERN_RANK, json_object_get(from->config, "rank_pattern"), source,
                                  from->err);
    if (status == WEFT_OK)
        status = patterns_of_file(&self->alphas, PATTERN_ALPHA, json_object_get(from->config, "alpha_pattern"), source,
                                  from->err);
    if (status == WEFT_OK && (self->names == NULL || self->regex == NULL || self->layers == NULL ||
                              self->layers_pattern == NULL || self->exclude == NULL || self->exclude_regex == NULL))
        status = weft_error_set(from->err, WEFT_E_MEMORY, "no memory for an adapter");
    return status;
}

static weft_status read_all(weft_adapter *self, const reading *from) {
    const json_t *r = json_object_get(from->config, "r"), *alpha = json_object_get(from->config, "lora_alpha");
    const char *type = json_string_value(json_object_get(from->config, "peft_type"));
    const json_t *dropout = json_object_get(from->config, "lora_dropout");
    const double p = json_number_value(dropout);
    weft_status status = WEFT_OK;
    if (type == NULL || strcmp(type, "LORA") != 0)
        return refuse(from, "peft_type", "the plugin reads LORA. Fix: set [adapter] plugin to that of the type");
    if (!json_is_integer(r) || json_integer_value(r) < 1)
        return refuse(from, "r", "not valid. Allowed: an integer of at least 1");
    if (!json_is_number(alpha) || !(json_number_value(alpha) > 0))
        return refuse(from, "lora_alpha", "not valid. Allowed: a number above 0");
    if ((!source_says_nothing(dropout) && !json_is_number(dropout)) || p < 0 || p >= 1)
        return refuse(from, "lora_dropout", "not valid. Allowed: a number from 0 to below 1");
    status = check_rest(from);
    self->r = json_integer_value(r);
    self->alpha = json_number_value(alpha);
    self->dropout = p;
    self->dora = !source_says_nothing(json_object_get(from->config, "use_dora"));
    self->stabilised = !source_says_nothing(json_object_get(from->config, "use_rslora"));
    return status == WEFT_OK ? read_modules(&self->own, from, self->source) : status;
}

weft_status lora_read(weft_adapter *self, const weft_adapter_source *source, weft_error *err) {
    json_error_t why;
    reading from = {source, json_loadb(source->config_text, (size_t)source->config_bytes, 0, &why), err};
    weft_status status = WEFT_OK;
    if (!json_is_object(from.config))
        status = weft_error_set(err, WEFT_E_DATA, "%s: is no object in JSON%s%s", source->config_path,
                                from.config == NULL ? ": " : "", from.config == NULL ? why.text : "");
    if (status == WEFT_OK) status = read_all(self, &from);
    json_decref(from.config);
    return status;
}

/* ---- writing ---- */

/* True if all sites of the name are chosen: then the file has the name, else each path. */
static int is_chosen_everywhere(const weft_adapter_job *job, const uint8_t *chosen, const char *name) {
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->whole < 0 && site->weight != NULL && !chosen[i] && strcmp(targets_last_name(site->path), name) == 0)
            return 0;
    }
    return 1;
}

static json_t *list_modules(const weft_adapter_job *job, const uint8_t *chosen) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const char *name = targets_last_name(site->path);
        if (!chosen[i]) continue;
        if (!is_chosen_everywhere(job, chosen, name)) name = site->path;
        if (!lists(list, name)) (void)json_array_append_new(list, json_string(name));
    }
    return list;
}

char *lora_write(const weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen) {
    json_t *config = json_pack(
        "{s:s, s:I, s:f, s:f, s:b, s:s, s:b, s:o, s:o, s:o, s:s, s:o, s:o, s:b, s:b}", "peft_type", "LORA", "r",
        (json_int_t)self->r, "lora_alpha", self->alpha, "lora_dropout", self->dropout, "use_rslora", self->stabilised,
        "bias", "none", "fan_in_fan_out", 0, "target_modules", list_modules(job, chosen), "layers_to_transform",
        json_null(), "exclude_modules", json_null(), "init_lora_weights", self->gaussian ? "gaussian" : "true",
        "rank_pattern", patterns_write(PATTERN_RANK, job, chosen, self->ranks, (double)self->r), "alpha_pattern",
        patterns_write(PATTERN_ALPHA, job, chosen, self->alphas, self->alpha), "use_dora", self->dora, "lora_bias", 0);
    char *text = NULL;
    if (!self->gaussian) (void)json_object_set_new(config, "init_lora_weights", json_true());
    text = config == NULL ? NULL : json_dumps(config, JSON_SORT_KEYS);
    json_decref(config);
    return text;
}
