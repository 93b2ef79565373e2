/* host/tools/check/trees.c: see trees.h. */
#include "tools/check/trees.h"

#include <weft/random.h>

typedef struct pen {
    weft_tree *tree;
    uint64_t drawn; /* numbers that were drawn so far */
    uint32_t number;
    bool downwards;
} pen;

enum { DRAWN = 24, MANY = 24, LONG = 25, ELSEWHERE = 26 }; /* numbers of trees, those before DRAWN by chance */

static int64_t draw(pen *p, int64_t below) {
    return (int64_t)(weft_random(p->number, WEFT_RANDOM_SAMPLE, 0, p->drawn++).v[0] % (uint32_t)below);
}

static int32_t add_module(pen *p, int32_t parent, const char *name, const char *class_name, int32_t is_block) {
    weft_tree *tree = p->tree;
    const int32_t index = (int32_t)tree->job.n_modules++;
    weft_module_view *view = &tree->modules[index];
    const int32_t row = p->downwards ? WEFT_TREE_MODULES - 1 - index : index;
    char *path = tree->module_paths[row];
    const char *above = parent >= 0 ? tree->modules[parent].path : "";
    (void)snprintf(path, WEFT_TREE_NAME, "%.440s%s%s", above, above[0] == '\0' ? "" : ".", name);
    (void)snprintf(tree->class_names[row], sizeof tree->class_names[0], "%s", class_name);
    memset(view, 0, sizeof *view);
    view->struct_size = (uint32_t)sizeof *view;
    view->path = path;
    view->name = path + strlen(path) - strlen(name);
    view->class_name = tree->class_names[row];
    view->parent = parent;
    view->is_block = is_block;
    return index;
}

static void add_parameter(pen *p, int32_t module, int64_t numel) {
    weft_tree *tree = p->tree;
    const uint32_t index = tree->job.n_parameters++;
    weft_parameter_view *view = &tree->parameters[index];
    const uint32_t row = p->downwards ? WEFT_TREE_PARAMETERS - 1 - index : index;
    (void)snprintf(tree->parameter_names[row], WEFT_TREE_NAME, "%.480s.weight", tree->modules[module].path);
    memset(view, 0, sizeof *view);
    view->struct_size = (uint32_t)sizeof *view;
    view->name = tree->parameter_names[row];
    view->numel = numel;
    view->module = module;
    view->dtype = draw(p, 5) == 0 ? WEFT_BF16 : draw(p, 9) == 0 ? WEFT_F16 : WEFT_F32;
    view->trainable = draw(p, 4) != 0;
    tree->modules[module].own_parameters += numel;
    for (int32_t m = module; m >= 0; m = tree->modules[m].parent) {
        tree->modules[m].parameters += numel;
        tree->modules[m].trainable += view->trainable != 0 ? numel : 0;
    }
}

/* A weight object is a module of its own below the one that declares it. */
static void add_weight(pen *p, int32_t parent, const char *name, const char *class_name) {
    add_parameter(p, add_module(p, parent, name, class_name, 0), 1 + draw(p, draw(p, 3) == 0 ? 70000 : 900));
}

static void add_block(pen *p, int32_t parent, int64_t i) {
    char name[24];
    int32_t block, attention;
    (void)snprintf(name, sizeof name, "%lld", (long long)i);
    block = add_module(p, parent, name, "LlamaDecoderLayer", 1);
    attention = add_module(p, block, "attention", "LlamaAttention", 0);
    add_weight(p, attention, "q_proj", "Linear");
    if (draw(p, 2) == 0) add_weight(p, attention, "k_proj", "Linear");
    add_weight(p, block, "norm", "LlamaRMSNorm");
    if (draw(p, 3) != 0) add_weight(p, add_module(p, block, "mlp", "LlamaMLP", 0), "up_proj", "Linear");
    if (draw(p, 6) == 0) (void)add_module(p, block, "dropout", "Dropout", 0);
}

static int64_t blocks_of(pen *p) {
    switch (p->number) {
    case 1: return 0;
    case 2: return 1;
    case MANY: return 128;
    case LONG: return 1000;
    default: return 1 + draw(p, p->number < DRAWN ? 12 : 40);
    }
}

/* Where the model lies below the root: modules around it make paths long. */
static int32_t around(pen *p, int32_t root) {
    int32_t at = root;
    for (int i = 0; i < 6 && p->number == LONG; i++)
        at = add_module(p, at, "language_model_of_a_model_for_conditional_generation_of_text", "Wrapper", 0);
    return at;
}

static void clear(weft_tree *out) {
    memset(&out->job, 0, sizeof out->job);
    out->job.struct_size = (uint32_t)sizeof out->job;
    out->job.module_stride = (uint32_t)sizeof out->modules[0];
    out->job.parameter_stride = (uint32_t)sizeof out->parameters[0];
    out->job.modules = out->modules;
    out->job.parameters = out->parameters;
}

void weft_tree_draw(weft_tree *out, uint32_t number, bool downwards) {
    pen p = {out, 0, number, downwards};
    const bool elsewhere = number == ELSEWHERE;
    const int64_t blocks = blocks_of(&p);
    int32_t root, model;
    clear(out);
    root = add_module(&p, -1, number == 0 ? "model" : "", "LlamaForCausalLM", 0);
    if (number == 0) {
        add_parameter(&p, root, 77);
        return;
    }
    model = add_module(&p, around(&p, root), elsewhere ? "transformer" : "model", "LlamaModel", 0);
    add_weight(&p, model, elsewhere ? "wte" : "embed_tokens", "Embedding");
    if (blocks > 0) {
        const int32_t list = add_module(&p, model, elsewhere ? "h" : "layers", "ModuleList", 0);
        for (int64_t i = 0; i < blocks; i++) add_block(&p, list, i);
    }
    add_weight(&p, model, elsewhere ? "ln_f" : "norm", "LlamaRMSNorm");
    if (draw(&p, 2) == 0) add_weight(&p, root, "lm_head", "Linear");
}
