/* LoRA against PEFT on transformers (tests/golden/make_peft.py): logits, loss, the gradient of every trained parameter,
 * and ten clipped AdamW steps. Adapters written by PEFT: on all linears; on an embedding, with a trained norm; with
 * trained head, embedding and norms; in some layers; on matrices read in slices; with ranks and alphas of single
 * modules and exclusions; and DoRA on packed matrices. */
#include "golden.h"
#include "scratch.h"
#include "suite.h"
#include "adapter/adapter.h"
#include "tools/merge/merge.h"
#include "model/weights.h"
#include "program/plan.h"

#include <jansson.h>
#include <sys/stat.h>

static const struct {
    const char *name, *base, *trainable, *stored;
} cases[] = {{"peft-lora", "llama-gqa", "train.trainable=auto", "model.base=auto"},
             {"peft-lora-parts", "llama-tied", "train.trainable=adapter,model.norm.weight", "model.base=auto"},
             {"peft-lora-layers", "llama-tied", "train.trainable=auto", "model.base=auto"},
             {"peft-lora-fused", "family-phi3", "train.trainable=adapter", "model.base=auto"},
             {"peft-lora-whole", "llama-gqa", "train.trainable=adapter,head,model.embed_tokens.weight,*norm.weight",
              "model.base=auto"},
             {"peft-lora-patterns", "llama-gqa", "train.trainable=auto", "model.base=auto"},
             {"peft-lora-excluded", "family-phi3", "train.trainable=auto", "model.base=auto"},
             {"peft-dora-nf4", "llama-gqa", "train.trainable=auto", "model.base=nf4"}};
enum { N_CASES = LENGTH(cases) };

static char from[4200];

static void name_adapter(int i) {
    char path[4096];
    golden_path(path, sizeof path, cases[i].name);
    (void)snprintf(from, sizeof from, "adapter.from=%s", path);
}

static void open_engine(golden_engine *g, golden_batch *batch, int i) {
    const char *const overrides[] = {from,
                                     cases[i].trainable,
                                     cases[i].stored,
                                     "optimizer.plugin=adamw",
                                     "optimizer.lr=1e-3",
                                     "optimizer.weight_decay=0.01"};
    name_adapter(i);
    golden_batch_open(batch, cases[i].name);
    golden_engine_open(g, batch, cases[i].base, 1, overrides, 6);
}

/* DoRA's factors start at the row norms of the unpacked values. */
TEST(norms_of_a_packed_base) {
    const int dora = N_CASES - 1;
    const char *const overrides[] = {"adapter.plugin=lora", "adapter.r=3", "adapter.dora=yes", cases[dora].stored,
                                     "optimizer.plugin=adamw"};
    golden_batch batch;
    golden_engine g;
    int n = 0;
    golden_batch_open(&batch, cases[dora].name);
    golden_engine_open(&g, &batch, cases[dora].base, 1, overrides, 5);
    for (int32_t i = 0; i < g.engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &g.engine->plan.declared->parameters[i];
        char name[256];
        float *found = NULL;
        if (strstr(p->name, "magnitude") == NULL) continue;
        (void)snprintf(name, sizeof name, "fresh.%s", p->name);
        found = read_floats(g.engine, g.engine->parameter_refs[i], p->numel);
        ck_assert_msg(relative_error(found, golden_floats(&batch, name), p->numel) < 1e-6, "%s is off by %.3g", name,
                      relative_error(found, golden_floats(&batch, name), p->numel));
        free(found);
        n++;
    }
    ck_assert_int_eq(n, 14);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

TESTS(loss_gradients_and_ten_steps, N_CASES) {
    golden_batch batch;
    golden_engine g;
    open_engine(&g, &batch, _i);
    golden_ten_steps(&g, &batch, false);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

/* PEFT also saves the frozen table below an adapter; the adapter continues if the base has the same values. */
TEST(a_table_that_stays_frozen) {
    const int patterns = 5;
    const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    const char *const tensor = "base_model.model.model.embed_tokens.base_layer.weight";
    char path[4096], copy[4200], *bytes = NULL;
    size_t n = 0;
    uint64_t header = 0;
    json_int_t at = 0, end = 0;
    json_t *head = NULL;
    golden_batch batch;
    golden_engine g;
    weft_error err = WEFT_ERROR_INIT;
    open_engine(&g, &batch, patterns);
    golden_path(path, sizeof path, cases[patterns].name);
    ck_assert_ok(weft_adapter_check(g.engine->plan.declared, path, WEFT_ADAPTER_SAVED, &err), err);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(copy, sizeof copy, "%s/%s", path, names[i]);
        bytes = read_bytes(copy, &n);
        if (i == 1) {
            memcpy(&header, bytes, sizeof header);
            head = json_loadb(bytes + 8, header, 0, NULL);
            ck_assert_int_eq(json_unpack(head, "{s:{s:[I, I]}}", tensor, "data_offsets", &at, &end), 0);
            bytes[8 + (json_int_t)header + end - 1] ^= 1;
            json_decref(head);
        }
        write_bytes(scratch_path(names[i]), bytes, n);
        free(bytes);
    }
    ck_assert_int_eq(weft_adapter_check(g.engine->plan.declared, scratch, WEFT_ADAPTER_SAVED, &err), WEFT_E_USER);
    ck_assert_says(err, tensor);
    ck_assert_int_eq(weft_adapter_check(g.engine->plan.declared, scratch, 0, &err), WEFT_OK);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

/* Writes an adapter's tensors to scratch/adapter_model.safetensors, with `insert` after `after` in each name. doubled:
 * the first tensor also has its own name. */
static void write_wrapped(const char *from_file, const char *after, const char *insert, bool doubled) {
    static char names[64][256];
    weft_safetensors *file = NULL;
    weft_tensor_writer *writer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_spec specs[64];
    int32_t n = 0;
    (void)unlink(scratch_path("adapter_model.safetensors"));
    ck_assert_ok(weft_safetensors_open(&file, from_file, &err), err);
    ck_assert_int_lt(file->n_tensors, 63);
    for (; n < file->n_tensors + doubled; n++) {
        const weft_tensor *tensor = &file->tensors[n % file->n_tensors];
        const char *at = n < file->n_tensors ? strstr(tensor->name, after) : NULL;
        const size_t before = at == NULL ? 0 : (size_t)(at - tensor->name) + strlen(after);
        (void)snprintf(names[n], sizeof names[n], "%.*s%s%s", (int)before, tensor->name, at == NULL ? "" : insert,
                       tensor->name + before);
        specs[n] = (weft_tensor_spec){.name = names[n], .dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(specs[n].dims, tensor->dims, sizeof tensor->dims);
    }
    ck_assert_ok(weft_tensor_writer_open(&writer, scratch_path("adapter_model.safetensors"), specs, n, true, &err),
                 err);
    for (int32_t i = 0; i < n; i++) {
        const weft_tensor *tensor = &file->tensors[i % file->n_tensors];
        ck_assert_int_eq(weft_tensor_writer_write(writer, i, 0, tensor->data, tensor->bytes, &err), WEFT_OK);
    }
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    weft_safetensors_close(file);
}

/* A model that was compiled or wrapped before PEFT added the adapter has the wrapper in the names. */
TEST(an_adapter_of_a_wrapped_model) {
    static const char *const wrapped[][2] = {{"base_model.model.", "_orig_mod."},
                                             {"self_attn.", "_orig_mod._checkpoint_wrapped_module."},
                                             {"layers.0.", "_fsdp_wrapped_module."}};
    char path[4096], file[4200], *bytes = NULL;
    size_t n = 0;
    golden_batch batch;
    golden_engine g;
    weft_error err = WEFT_ERROR_INIT;
    open_engine(&g, &batch, 0);
    golden_path(path, sizeof path, cases[0].name);
    (void)snprintf(file, sizeof file, "%s/adapter_config.json", path);
    bytes = read_bytes(file, &n);
    write_bytes(scratch_path("adapter_config.json"), bytes, n);
    free(bytes);
    (void)snprintf(file, sizeof file, "%s/adapter_model.safetensors", path);
    for (int i = 0; i < 3; i++) {
        write_wrapped(file, wrapped[i][0], wrapped[i][1], false);
        ck_assert_ok(weft_adapter_check(g.engine->plan.declared, scratch, WEFT_ADAPTER_SAVED, &err), err);
    }
    write_wrapped(file, wrapped[0][0], wrapped[0][1], true);
    ck_assert_int_eq(weft_adapter_check(g.engine->plan.declared, scratch, WEFT_ADAPTER_SAVED, &err), WEFT_E_DATA);
    ck_assert_says(err, "_orig_mod");
    ck_assert_says(err, scratch);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

TESTS(logits_of_every_place, N_CASES) {
    const weft_generate_options options = {.tokens = 1, .top_p = 1.0, .cache = false};
    const char *overrides[] = {from, cases[_i].stored};
    golden_batch batch;
    weft_run *run = NULL;
    weft_generator *generator = NULL;
    name_adapter(_i);
    golden_batch_open(&batch, cases[_i].name);
    generator = golden_generator(&run, cases[_i].base, overrides, 2, batch.length, &options);
    ck_assert_double_lt(golden_worst_logit(&batch, generator), 1e-4);
    weft_generator_destroy(generator);
    weft_run_close(run);
    golden_batch_close(&batch);
}

/* Saves a directory with the base stored packed. */
static void save_packed(golden_batch *batch, int i, const char *directory) {
    const char *const overrides[] = {cases[i].stored, "train.trainable=*norm.weight", "optimizer.plugin=adamw"};
    golden_engine g;
    weft_region region;
    weft_error err = WEFT_ERROR_INIT;
    golden_engine_open(&g, batch, cases[i].base, 1, overrides, 3);
    region = weft_engine_region(g.engine, WEFT_HOLD_PARAMETERS);
    ck_assert_ok(weft_weights_save(&region, directory, WEFT_F32, WEFT_SHARD_BYTES, NULL, &err), err);
    golden_engine_close(&g);
}

/* A base and an adapter to merge, in a directory of their own. */
typedef struct merge_rig {
    golden_batch batch;
    weft_run *run;
    weft_plan plan;
    weft_merging merging;
    char base[4096], packed[200], out[200]; /* packed: the base, if the case stores it packed; else empty */
} merge_rig;

static bool stores_nf4(int i) {
    return strcmp(cases[i].stored, "model.base=nf4") == 0;
}

static void merge_rig_open(merge_rig *self, int i) {
    const uint32_t needs = WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY);
    char model[4200], plugin[64];
    const char *const overrides[] = {model, plugin, from};
    weft_error err = WEFT_ERROR_INIT;
    *self = (merge_rig){.plan = {.world = 1, .nodes = 1}};
    (void)snprintf(self->packed, sizeof self->packed, "%s/packed", scratch);
    (void)snprintf(self->out, sizeof self->out, "%s/out", scratch);
    ck_assert(mkdir(self->packed, 0777) == 0 && mkdir(self->out, 0777) == 0);
    name_adapter(i);
    golden_path(self->base, sizeof self->base, cases[i].base);
    golden_plugin(plugin, sizeof plugin, cases[i].base);
    golden_batch_open(&self->batch, cases[i].name);
    if (stores_nf4(i)) {
        save_packed(&self->batch, i, self->packed);
        (void)snprintf(self->base, sizeof self->base, "%s", self->packed);
    }
    (void)snprintf(model, sizeof model, "model.path=%s", self->base);
    ck_assert_ok(weft_run_open(&self->run, NULL, overrides, 3, needs, &err), err);
    ck_assert_ok(weft_plan_open(&self->plan, self->run, &err), err);
    self->merging.declared = self->plan.declared;
    self->merging.host = self->run->host;
    self->merging.base = self->base;
    self->merging.adapter = self->run->settings.adapter_from;
    self->merging.directory = self->out;
}

static void merge_rig_close(merge_rig *self) {
    weft_plan_close(&self->plan);
    weft_run_close(self->run);
    golden_batch_close(&self->batch);
}

static void expect_merge_refused(const merge_rig *rig, const char *says) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(weft_adapter_merge(&rig->merging, &err), WEFT_E_USER);
    ck_assert_says(err, says);
}

static void expect_tensor(const weft_safetensors *merged, const weft_tensor *expected) {
    const weft_tensor *found = weft_safetensors_find(merged, expected->name + strlen("merged."));
    ck_assert_msg(found != NULL && found->dtype == WEFT_F32 && found->numel == expected->numel, "%s", expected->name);
    ck_assert_double_lt(relative_error((const float *)(const void *)found->data,
                                       (const float *)(const void *)expected->data, found->numel),
                        1e-6);
}

static void expect_merged(const merge_rig *rig) {
    weft_safetensors *merged = NULL;
    weft_error err = WEFT_ERROR_INIT;
    int n = 0;
    ck_assert_ok(weft_adapter_merge(&rig->merging, &err), err);
    ck_assert_ok(weft_safetensors_open_directory(&merged, rig->out, &err), err);
    for (int32_t i = 0; i < rig->batch.file->n_tensors; i++) {
        const weft_tensor *expected = &rig->batch.file->tensors[i];
        if (strncmp(expected->name, "merged.", strlen("merged.")) != 0) continue;
        expect_tensor(merged, expected);
        n++;
    }
    ck_assert_int_eq(n, 2);
    weft_safetensors_close(merged);
}

/* The rounded sum of base and update equals PEFT's merge_and_unload. A table tied to the head is rejected, and so is a
 * packed base without a dtype. */
TESTS(merged_weights, N_CASES) {
    merge_rig rig;
    merge_rig_open(&rig, _i);
    if (stores_nf4(_i)) {
        expect_merge_refused(&rig, "is stored in nf4: ");
        expect_merge_refused(&rig, "Fix: --dtype bf16, fp16 or fp32");
        rig.merging.dtype = WEFT_F32;
    }
    if (strcmp(cases[_i].name, "peft-lora-parts") == 0)
        expect_merge_refused(&rig, "'model.embed_tokens' is tied to the head");
    else expect_merged(&rig);
    merge_rig_close(&rig);
}

/* ---- bases that differ from their config.json ---- */

enum { NO_PREFIX, OTHER_PREFIX, LACKS_ONE, DOUBLES, TIES_DIFFER, WIDER };
static const struct {
    const char *name, *says;
    int how;
} spoiled[] = {{"peft-lora", "unexpected (odel.embed_tokens.weight, ", OTHER_PREFIX},
               {"peft-lora", "1 missing (model.layers.0.self_attn.q_proj.weight)", LACKS_ONE},
               {"peft-lora", "model.layers.0.self_attn.q_proj.weight is F64", DOUBLES},
               {"peft-lora", "1 of another shape (model.layers.0.self_attn.q_proj.weight is (", WIDER},
               {"peft-lora-layers", "'model.embed_tokens.weight' and 'lm_head.weight' differ", TIES_DIFFER}};

static int case_of(const char *name) {
    int i = 0;
    while (i < N_CASES && strcmp(cases[i].name, name) != 0) i++;
    ck_assert_int_lt(i, N_CASES);
    return i;
}

static bool is_spoiled(const char *name) {
    return strcmp(name, "model.layers.0.self_attn.q_proj.weight") == 0;
}

/* Decides how to write a tensor; false: leaves it out. */
static bool spoil(weft_tensor_spec *spec, const weft_tensor *tensor, int how) {
    *spec = (weft_tensor_spec){.name = tensor->name, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(spec->dims, tensor->dims, sizeof tensor->dims);
    if (how == NO_PREFIX && strncmp(spec->name, "model.", 6) == 0) spec->name += 6;
    if (how == OTHER_PREFIX && strncmp(spec->name, "model.", 6) == 0) spec->name += 1;
    if (how == DOUBLES && is_spoiled(spec->name)) spec->dtype = WEFT_F64;
    if (how == WIDER && is_spoiled(spec->name)) spec->dims[1] *= 2;
    return how != LACKS_ONE || !is_spoiled(spec->name);
}

/* Writes model.safetensors to rig->packed, the new base; elements missing in the base are zero. */
static void spoil_base(merge_rig *rig, int how) {
    weft_safetensors *files = NULL;
    weft_tensor_writer *writer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_spec specs[64];
    const weft_tensor *tensors[64];
    char path[256];
    int32_t n = 0;
    ck_assert_ok(weft_safetensors_open_directory(&files, rig->base, &err), err);
    ck_assert_int_lt(files->n_tensors, 63);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        tensors[n] = &files->tensors[i];
        n += spoil(&specs[n], tensors[n], how);
    }
    if (how == TIES_DIFFER) {
        tensors[n] = weft_safetensors_find(files, "model.norm.weight"); /* the head's row 0; zeros below it */
        (void)spoil(&specs[n], weft_safetensors_find(files, "model.embed_tokens.weight"), how);
        specs[n++].name = "lm_head.weight";
    }
    (void)snprintf(path, sizeof path, "%s/model.safetensors", rig->packed);
    ck_assert_ok(weft_tensor_writer_open(&writer, path, specs, n, true, &err), err);
    for (int32_t i = 0; i < n; i++)
        ck_assert(weft_tensor_writer_write(writer, i, 0, tensors[i]->data,
                                           tensors[i]->numel * weft_dtype_bytes(tensors[i]->dtype), &err) == WEFT_OK);
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    weft_safetensors_close(files);
    rig->merging.base = rig->packed;
}

/* A base with tensors other than the adapter was declared on is rejected before any copy. */
TESTS(bases_that_do_not_fit, LENGTH(spoiled)) {
    merge_rig rig;
    weft_error err = WEFT_ERROR_INIT;
    char path[256];
    merge_rig_open(&rig, case_of(spoiled[_i].name));
    spoil_base(&rig, spoiled[_i].how);
    ck_assert_int_eq(weft_adapter_merge(&rig.merging, &err), WEFT_E_DATA);
    ck_assert_says(err, spoiled[_i].says);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", rig.out);
    ck_assert_int_ne(access(path, F_OK), 0);
    merge_rig_close(&rig);
}

/* Names as saved by AutoModel: merged and written with the names of the model with its head. */
TEST(a_base_without_the_prefix) {
    merge_rig rig;
    merge_rig_open(&rig, case_of("peft-lora"));
    spoil_base(&rig, NO_PREFIX);
    expect_merged(&rig);
    merge_rig_close(&rig);
}

int main(void) {
    return run_tests(test_case("peft", 300, scratch_make, scratch_remove));
}
