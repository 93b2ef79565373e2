/* packed_model.c: LLaMA with linears of a storage of their own, and a low-rank part in two of each block: what a model
 * plugin for quantised fine-tuning says. Everything else is the real plugin's. */
#include "fault.h"

#include <weft/model.h>

static weft_model_plugin real, table;
static const weft_builder *host_builder;

enum { RANK = 4 };

static int is_one_of(const char *name, const char *a, const char *b) {
    return strcmp(name, a) == 0 || strcmp(name, b) == 0;
}

static weft_weight *declare_weight(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec) {
    const weft_low_rank_spec part = {.struct_size = (uint32_t)sizeof part,
                                     .down = "lora_A",
                                     .up = "lora_B",
                                     .class_name = "Linear",
                                     .rank = RANK,
                                     .factor = 2.0,
                                     .init_std = 0.05};
    weft_weight_spec own = *spec;
    weft_weight *weight = NULL;
    if (spec->role == WEFT_WEIGHT_LINEAR) own.storage = STORAGE;
    weight = host_builder->weight(ctx, module, &own);
    if (is_one_of(spec->name, "q_proj", "down_proj")) host_builder->low_rank(ctx, weight, &part);
    return weight;
}

static weft_status declare(weft_model *model, const weft_builder *b, weft_error *err) {
    weft_builder own = *b;
    own.weight = declare_weight;
    host_builder = b;
    return real.declare(model, &own, err);
}

FAULT_NOTE(model, FAULT_ID)
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.declare = declare;
    return fault_list(plugin, FAULT_ID, &table);
}
