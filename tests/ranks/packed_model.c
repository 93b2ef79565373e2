/* packed_model.c: LLaMA with linears of another storage dtype, as declared by a model plugin for quantized fine-tuning.
 * Everything else is the original plugin's. */
#include "fault.h"

#include <weft/model.h>

static weft_model_plugin real, table;
static const weft_builder *host_builder;

static weft_weight *declare_weight(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec) {
    weft_weight_spec own = *spec;
    if (spec->role == WEFT_WEIGHT_LINEAR) own.storage = STORAGE;
    return host_builder->weight(ctx, module, &own);
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
