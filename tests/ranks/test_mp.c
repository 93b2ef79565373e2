/* tests/ranks/test_mp.c: strategy mp has the bits of single, for any map, schedule and policy; and the maps that it
 * rejects.
 *
 * A cell is a launch of this program under MPICH, whose ranks train a small model for some steps. Rank 0 prints a hash
 * of all parameters and optimizer states, and an evaluation's loss. Micro-batches differ in length. */
#include "tools/common/checksums.h"
#include "train/tables.h"
#include "ranks/launched.h"
#include "train/fit.h"
#include "train_rig.h"
#include "run/engine.h"

enum { SHORT = 8, LONG = 20, MICRO_BATCHES = 6, STEPS = 3, VOCABULARY = 61, LAYERS = 3, ARGS = 24 };

static const char *cell_model;
static const char *cell_args[ARGS];
static size_t n_cell_args;

/* ---- a rank ---- */

static weft_plan_spec cell_spec(void) {
    const weft_plan_spec spec = {.training = true,
                                 .evaluate_rows = 1,
                                 .micro_batches = MICRO_BATCHES,
                                 .rows = 1,
                                 .n_lengths = 2,
                                 .lengths = {SHORT, LONG}};
    return spec;
}

/* Checks that the other ranks' plan for this rank equals its own plan and allocations. */
static void check_all_rank_plan(const weft_engine *engine) {
    weft_error err = WEFT_ERROR_INIT;
    weft_all_rank_plan *all_rank_plan = NULL;
    const weft_plan_bytes *bytes = NULL;
    ck_assert_ok(weft_all_rank_plan_create(&all_rank_plan, &engine->plan, &err), err);
    bytes = &all_rank_plan->bytes[engine->ranks.rank];
    ck_assert_int_eq(memcmp(bytes, &engine->plan.bytes, sizeof *bytes), 0);
    ck_assert_int_eq(engine->account.most, bytes->total);
    weft_all_rank_plan_destroy(all_rank_plan);
}

START_TEST(rank) {
    const weft_plan_spec spec = cell_spec();
    ragged_data data = {SHORT, LONG, VOCABULARY};
    weft_error err = WEFT_ERROR_INIT;
    train_rig rig;
    char hex[65];
    double loss = 0.0;
    train_rig_open(&rig, cell_model, NULL, cell_args, n_cell_args);
    rig.data_plugin = &ragged_data_plugin;
    rig.data = (weft_data *)(void *)&data;
    train_rig_start(&rig, &spec);
    train_rig_steps(&rig, STEPS);
    loss = train_rig_evaluate(&rig);
    ck_assert_ok(weft_engine_hash(hex, rig.engine, &err), err);
    check_all_rank_plan(rig.engine);
    if (rig.engine->ranks.rank == 0) printf("cell %s %a\n", hex, loss);
    train_rig_close(&rig);
}
END_TEST

/* ---- cells ---- */

typedef struct cell {
    char text[120]; /* hash and loss; empty: failed */
    char said[2000];
} cell;

static void take_text(void *context, const char *line) {
    cell *out = context;
    (void)snprintf(out->text, sizeof out->text, "%.110s", line);
}

/* ranks 0: single, in a child process. more: further arguments, each quoted. */
static void run_cell(cell *out, const fresh_model *model, int ranks, const char *more) {
    char command[8192];
    memset(out, 0, sizeof *out);
    if (ranks == 0)
        (void)snprintf(command, sizeof command, "'%s' %s device.threads=2 model.start=fresh %s 2>&1", self_path,
                       model->path, more);
    else
        (void)snprintf(command, sizeof command,
                       "mpiexec.mpich -n %d '%s' %s device.threads=1 model.start=fresh comm.plugin=mpi-mpich "
                       "strategy.plugin=mp %s 2>&1",
                       ranks, self_path, model->path, more);
    if (!run_command(command, out->said, sizeof out->said, "cell ", take_text, out)) out->text[0] = '\0';
}

static void make_model(fresh_model *out, bool tied) {
    const fresh_shape shape = {.hidden = 24,
                               .mlp = 40,
                               .layers = LAYERS,
                               .heads = 4,
                               .kv_heads = 2,
                               .vocabulary = VOCABULARY,
                               .context = LONG,
                               .tied = tied};
    fresh_model_make(out, &shape);
}

/* Each row of cells has the bits of single with the same arguments. */
typedef struct row {
    bool tied;
    const char *both;    /* also for single */
    const char *more[6]; /* "ranks arguments" of mp */
} row;

static const row rows[] = {
    {true,
     "",
     {"2 strategy.schedule=naive", "3 strategy.schedule=gpipe policy.plugin=whole",
      "4 strategy.schedule=1f1b policy.plugin=size", "3 strategy.schedule=naive policy.plugin=whole",
      "2 'strategy.device_map=embed,layers.0,layers.2=1;layers.1,head=0' strategy.schedule=gpipe policy.plugin=whole",
      "4 strategy.schedule=naive policy.plugin=whole strategy.device_map=sequential"}},
    {false,
     "",
     {"2 strategy.schedule=1f1b policy.plugin=whole", "3 strategy.schedule=naive policy.plugin=size",
      "4 strategy.schedule=gpipe", "3 'strategy.device_map=head=0;layers.0-2.mlp,embed=1;layers.0-2.attn=2'",
      "3 'strategy.device_map=layers.2,head=0;layers.0-1=1;embed=2' strategy.schedule=1f1b policy.plugin=whole"}},
    {true,
     "train.activation_checkpointing=yes strategy.reduce=tree",
     {"2 strategy.schedule=gpipe", "3 strategy.schedule=1f1b policy.plugin=whole", "4 strategy.schedule=naive"}},
    {true,
     "train.precision=bf16 strategy.reduce_dtype=bf16",
     {"2 strategy.schedule=1f1b policy.plugin=whole", "4 strategy.schedule=gpipe"}},
    {true, "train.trainable=last:1", {"3 strategy.schedule=1f1b", "2 strategy.schedule=gpipe policy.plugin=whole"}},
    {false, "train.trainable=head,first:1", {"4 strategy.schedule=1f1b policy.plugin=whole"}},
};

TESTS(cells_are_single, LENGTH(rows)) {
    const row *r = &rows[_i];
    fresh_model model;
    cell single, mp;
    if (!has_mpich()) return;
    make_model(&model, r->tied);
    run_cell(&single, &model, 0, r->both);
    ck_assert_msg(single.text[0] != '\0', "single %s: %s", r->both, single.said);
    for (int i = 0; i < 6 && r->more[i] != NULL; i++) {
        char more[1000];
        (void)snprintf(more, sizeof more, "%s %s", r->more[i] + 2, r->both);
        run_cell(&mp, &model, atoi(r->more[i]), more);
        ck_assert_msg(mp.text[0] != '\0', "mp %s %s: %s", r->more[i], r->both, mp.said);
        ck_assert_msg(strcmp(mp.text, single.text) == 0, "mp %s %s ends with %s, single with %s", r->more[i], r->both,
                      mp.text, single.text);
    }
    fresh_model_remove(&model);
}

/* The rows are different runs, so that equal bits are not those of an unchanged model. */
TEST(rows_differ) {
    cell all[LENGTH(rows)];
    for (int i = 0; i < (int)LENGTH(rows); i++) {
        fresh_model model;
        make_model(&model, rows[i].tied);
        run_cell(&all[i], &model, 0, rows[i].both);
        ck_assert_msg(all[i].text[0] != '\0', "single %s: %s", rows[i].both, all[i].said);
        fresh_model_remove(&model);
        for (int j = 0; j < i; j++) ck_assert_str_ne(all[i].text, all[j].text);
    }
}

/* ---- rejected maps ---- */

static const struct {
    int ranks; /* 1: in this process */
    const char *map, *says;
} bad_maps[] = {
    {1, "embed,layers.0-1,head = 0", "assigns segment layers.2.attn and others to no rank (2 of 8"},
    {1, "embed,layers.0-2,head,layers.1.mlp = 0", "more than once: \"embed,layers.0-2,head,layers.1.mlp = 0\""},
    {1, "embed,layers.0-2,head = 0; layers.1.mlp = 0",
     "assigns segment layers.1.mlp more than once: by \"embed,layers.0-2,head = 0\", and by \"layers.1.mlp = 0\""},
    {1, "embed,layers.0-1;layers.2,head = 0", "has \"embed,layers.0-1\". Allowed: "},
    {1, "embed,layers.0-2,head = one", "entries names = rank"},
    {1, "embed,layers.0-3,head = 0",
     "names layers.3, and no segment is called so: did you mean layers.2? The "
     "segments are embed, layers.0-2, head"},
    {1, "embd,layers.0-2,head = 0", "did you mean embed?"},
    {1, "embed,layer.1,head = 0", "did you mean layers.1? The segments are embed, layers.0-2, head"},
    {1, "embed,layers.0.q_proj,head = 0",
     "no segment is called so. The segments of layers.0 are layers.0.attn, layers.0.mlp"},
    {1, "embed,layers.0-2.atn,head = 0",
     "did you mean layers.0-2.attn? The segments of layers.0-2 are layers.0-2.attn, layers.0-2.mlp"},
    {1, "tower = 0", "names tower, and no segment is called so. The segments are"},
    {1, "embed,layers.0-2.attn.q_proj,head = 0", "which is smaller than segment layers.0.attn"},
    {1, "embed,layers.2-0,head = 0", "the range layers.2-0, which ends before it begins"},
    {1, "embed,,head = 0", "there is no name before a comma"},
    {1, "embed,layers.0-2,head = 1", "there is no rank 1: this job's are 0 to 0"},
    {1, "balanced", "Allowed: auto, sequential"},
    {2, "embed,layers,head = 1", "assigns no segment to rank 0 of 2"},
    {2, "embed,layers.1,head = 1;layers.0,layers.2=0", "schedule = 1f1b needs contiguous segments"},
};

TESTS(bad_map, LENGTH(bad_maps)) {
    char map[400];
    fresh_model model;
    cell out;
    if (bad_maps[_i].ranks > 1 && !has_mpich()) return;
    make_model(&model, true);
    (void)snprintf(map, sizeof map, "'strategy.device_map=%s' %s", bad_maps[_i].map,
                   bad_maps[_i].ranks > 1 ? "strategy.schedule=1f1b" : "strategy.plugin=mp");
    run_cell(&out, &model, bad_maps[_i].ranks > 1 ? bad_maps[_i].ranks : 0, map);
    ck_assert_str_eq(out.text, "");
    ck_assert_msg(strstr(out.said, "[strategy] device_map") != NULL && strstr(out.said, bad_maps[_i].says) != NULL,
                  "\"%s\": \"%s\" does not say \"%s\"", bad_maps[_i].map, out.said, bad_maps[_i].says);
    fresh_model_remove(&model);
}

/* One rank would have no segment. */
TEST(too_many_ranks) {
    fresh_model model;
    cell out;
    if (!has_mpich()) return;
    make_model(&model, true);
    run_cell(&out, &model, 9, "");
    ck_assert_msg(strstr(out.said, "this model has 8 for 9 ranks") != NULL, "%s", out.said);
    fresh_model_remove(&model);
}

/* ---- the report ---- */

static void check_sum(const weft_stages *stages, const weft_all_rank_plan *all_rank_plan, int32_t r) {
    const weft_plan_bytes *b = &all_rank_plan->bytes[r];
    int64_t sum = b->spare;
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) {
        if (i != WEFT_MEMORY_DATA) ck_assert_int_gt(b->category[i], 0); /* these plans read no data */
        sum += b->category[i];
    }
    ck_assert_int_eq(sum, b->total);
    ck_assert_int_eq(sum, stages->rows[r].total);
}

/* Plans two ranks with a map. */
static void plan_map(weft_stages *out, const fresh_model *model, const char *map) {
    const weft_plan_spec spec = cell_spec();
    const char *overrides[] = {"strategy.plugin=mp", "model.start=fresh", map};
    weft_error err = WEFT_ERROR_INIT;
    weft_all_rank_plan *all_rank_plan = NULL;
    train_rig rig;
    weft_launch_want(WEFT_RANKS_PLANNED, 2);
    train_rig_open(&rig, model->path, NULL, overrides, 3);
    ck_assert_ok(weft_engine_prepare(rig.engine, &spec, &err), err);
    ck_assert_ok(weft_all_rank_plan_create(&all_rank_plan, &rig.engine->plan, &err), err);
    weft_stages_make(out, &rig.engine->plan, all_rank_plan);
    for (int32_t r = 0; r < out->n; r++) check_sum(out, all_rank_plan, r);
    weft_all_rank_plan_destroy(all_rank_plan);
    train_rig_close(&rig);
}

TEST(ranges_are_named) {
    fresh_model model;
    weft_stages stages;
    char text[4096] = "";
    FILE *to = fmemopen(text, sizeof text, "w");
    make_model(&model, false);
    plan_map(&stages, &model, "strategy.device_map=embed,layers.0,layers.1.attn=0;layers.1.mlp,layers.2,head=1");
    ck_assert_int_eq(stages.n, 2);
    ck_assert_str_eq(stages.rows[0].segments, "embed, layers.0, layers.1.attn");
    ck_assert_str_eq(stages.rows[1].segments, "layers.1.mlp, layers.2, head");
    weft_stages_print(&stages, to);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_ptr_nonnull(strstr(text, "layers.1.mlp, layers.2, head\n"));
    ck_assert_ptr_nonnull(strstr(text, "  imbalance: rank "));
    ck_assert_ptr_nonnull(strstr(text, " % more than the mean; "));
    weft_stages_free(&stages);
    fresh_model_remove(&model);
}

TEST(reports_that_no_move_helps) {
    weft_stage_row ranks[2] = {{.segments = "embed", .total = 1000}, {.segments = "head", .total = 600}};
    const weft_stages stages = {.rows = ranks, .n = 2, .imbalance = 25.0, .imbalance_then = 25.0};
    char text[1024] = "";
    FILE *to = fmemopen(text, sizeof text, "w");
    weft_stages_print(&stages, to);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_ptr_nonnull(strstr(text, "  imbalance: rank 0 takes 25.0 % more than the mean; no layer on a neighbour "
                                       "instead makes it less\n"));
}

/* Following the report's advice improves the plan, until there is no more advice. */
TEST(advice_helps) {
    static const char *const maps[] = {"strategy.device_map=embed=0;layers.0-2,head=1",
                                       "strategy.device_map=embed,layers.0=0;layers.1-2,head=1"};
    fresh_model model;
    weft_stages before, after;
    make_model(&model, false);
    plan_map(&before, &model, maps[0]);
    ck_assert_str_eq(before.rows[1].segments, "layers.0-2, head");
    ck_assert_int_eq(before.largest, 1);
    ck_assert_str_eq(before.layer, "layers.0");
    ck_assert_int_eq(before.from, 1);
    ck_assert_int_eq(before.to, 0);
    plan_map(&after, &model, maps[1]);
    ck_assert_double_lt(after.imbalance, before.imbalance);
    ck_assert_double_lt(before.imbalance_then, before.imbalance);
    ck_assert_double_lt(after.imbalance - before.imbalance_then, 10.0);
    weft_stages_free(&before);
    weft_stages_free(&after);
    fresh_model_remove(&model);
}

int main(int argc, char **argv) {
    if (argc == 1) return run_launcher(test_case("mp", 120, NULL, NULL));
    cell_model = argv[1];
    for (int i = 2; i < argc && n_cell_args < ARGS; i++) cell_args[n_cell_args++] = argv[i];
    return run_rank(rank);
}
