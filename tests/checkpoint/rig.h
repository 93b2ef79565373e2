/* rig.h: a small run that can be opened, trained, saved and resumed: a fresh tied model of two layers with a vocabulary
 * of 401, on a few sentences, in a temporary directory. */
#ifndef WEFT_TEST_CHECKPOINT_RIG_H
#define WEFT_TEST_CHECKPOINT_RIG_H

#include "run/checkpoint.h"
#include "tools/common/checksums.h"
#include "model/fixture.h"
#include "run/session.h"

#include <math.h>

#define ck_assert_logged(part)                                                                                         \
    ck_assert_msg(strstr(fixture_log, part) != NULL, "\"%s\" does not say \"%s\"", fixture_log, part)

typedef struct rig {
    weft_session *session;
    weft_identities identities;
    weft_checkpoint_state state;
} rig;

static const char rig_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": %d, "
    "\"intermediate_size\": "
    "%d, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
    "\"vocab_size\": 401, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"torch_dtype\": \"float32\", \"bos_token_id\": 1, "
    "\"eos_token_id\": 2}\n";

static const char rig_ini[] = "[model]\nplugin = llama\npath = base\nstart = fresh\n"
                              "[run]\nout = out\nseed = 7\n"
                              "[device]\nplugin = cpu\nthreads = 1\n"
                              "[data]\nplugin = text\npath = story.txt\ndocument = line\ncontext = 24\nvalidation = 2\n"
                              "[train]\nsteps = 100\nglobal_batch = 4\nmicro_batch = 2\n"
                              "[optimizer]\nplugin = adamw\nlr = 1e-2\nweight_decay = 0.1\n"
                              "[tokenizer]\nplugin = bpe\n"
                              "[checkpoint]\nevery = 2\n";

static inline void rig_write_config(const char *directory, int hidden, int mlp) {
    char text[1024], path[300];
    (void)snprintf(text, sizeof text, rig_config, hidden, mlp);
    (void)snprintf(path, sizeof path, "%s/config.json", directory);
    write_text(path, text);
}

static inline void rig_copy_golden(const char *name) {
    char path[1024], base[64];
    size_t n = 0;
    char *bytes = NULL;
    (void)snprintf(path, sizeof path, "%s/tests/golden/tokenizer/sp-bpe/%s", getenv("WEFT_SOURCE"), name);
    bytes = read_bytes(path, &n);
    (void)snprintf(base, sizeof base, "base/%s", name);
    write_bytes(scratch_path(base), bytes, n);
    free(bytes);
}

/* Writes base/, story.txt and run.ini to the test's directory. */
static inline void rig_make(void) {
    static const char *const lines[] = {"the cat sat on the mat and looked at the dog", "a dog ran home in the rain",
                                        "one two three four five six seven eight", "the end of the story came soon",
                                        "rain fell on the house by the sea all night long"};
    FILE *story = NULL;
    scratch_make();
    fixture_log[0] = '\0';
    ck_assert_int_eq(mkdir(scratch_path("base"), 0777), 0);
    rig_write_config(scratch_path("base"), 24, 41);
    rig_copy_golden("tokenizer.json");
    rig_copy_golden("tokenizer_config.json");
    story = fopen(scratch_path("story.txt"), "w");
    ck_assert_ptr_nonnull(story);
    for (int i = 0; i < 25; i++) (void)fprintf(story, "%s, %d\n", lines[i % 5], i);
    (void)fclose(story);
    write_text(scratch_path("run.ini"), rig_ini);
}

/* Opens an engine with uninitialized memory. Overrides follow, terminated by NULL. */
static inline void rig_open(rig *self, ...) {
    const char *overrides[16];
    size_t n = 0;
    weft_error err = WEFT_ERROR_INIT;
    va_list args;
    memset(self, 0, sizeof *self);
    self->state.eval_loss = self->state.best_loss = NAN;
    va_start(args, self);
    while ((overrides[n] = va_arg(args, const char *)) != NULL) n++;
    va_end(args);
    ck_assert_ok(
        weft_session_open(&self->session, scratch_path("run.ini"), overrides, n, WEFT_SESSION_TRAIN, NULL, &err), err);
    self->session->run->host = &fixture_host; /* records its log from here on */
    ck_assert_ok(weft_session_start(self->session, &err), err);
    ck_assert_ok(weft_identities_collect(&self->identities, self->session->engine, self->session->data_info.fingerprint,
                                         &err),
                 err);
}

static inline void rig_close(rig *self) {
    weft_identities_clear(&self->identities);
    weft_session_close(self->session);
    memset(self, 0, sizeof *self);
}

static inline void rig_load(rig *self) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_engine_load(self->session->engine, &err), err);
}

/* Opens, and loads the weights. */
#define rig_start(self, ...) (rig_open(self, __VA_ARGS__), rig_load(self))

/* Runs optimizer steps up to and including `last`. */
static inline void rig_train(rig *self, uint64_t last) {
    weft_error err = WEFT_ERROR_INIT;
    while (self->state.step < last) {
        weft_step_result result = {0};
        const uint64_t step = self->state.step + 1;
        ck_assert_ok(weft_stepper_train(self->session->stepper, &result, step,
                                        weft_session_lr(self->session, (int64_t)step), self->session->clip, &err),
                     err);
        self->state.step = step;
        self->state.tokens += (uint64_t)result.n_targets;
    }
}

static inline const char *rig_directory(void) {
    return scratch_path("out/checkpoints");
}

static inline weft_status rig_list(weft_text_files *files, const rig *self, const weft_text *text, weft_error *err) {
    return weft_text_files_list(files, text, true, self->session->run->settings.model.path, err);
}

static inline weft_status rig_try_save(rig *self, weft_error *err) {
    weft_text_files files;
    weft_status status = rig_list(&files, self, &self->session->text, err);
    if (status == WEFT_OK)
        status =
            weft_checkpoint_save(self->session->engine, rig_directory(), &self->state, &self->identities, &files, err);
    weft_text_files_clear(&files);
    return status;
}

static inline weft_status rig_try_save_model(const rig *self, const char *directory, const weft_text *text,
                                             weft_error *err) {
    weft_text_files files;
    weft_status status = rig_list(&files, self, text, err);
    if (status == WEFT_OK) status = weft_model_save(self->session->engine, directory, &files, err);
    weft_text_files_clear(&files);
    return status;
}

static inline void rig_save(rig *self) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(rig_try_save(self, &err), err);
}

static inline weft_status rig_try_newest(rig *self, char path[4096], weft_error *err) {
    return weft_checkpoint_newest(path, &self->state, rig_directory(), NULL, &fixture_host, err);
}

/* Returns the step of the newest valid checkpoint. */
static inline uint64_t rig_newest(void) {
    weft_checkpoint_state state = {0};
    char path[4096];
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_checkpoint_newest(path, &state, rig_directory(), NULL, &fixture_host, &err), err);
    return state.step;
}

static inline weft_status rig_try_resume(rig *self, bool inexact, weft_error *err) {
    char path[4096];
    weft_status status = rig_try_newest(self, path, err);
    if (status == WEFT_OK)
        status = weft_checkpoint_restore(self->session->engine, path, &self->identities, inexact, err);
    return status;
}

static inline void rig_resume(rig *self) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(rig_try_resume(self, false, &err), err);
}

/* Opens, and resumes. */
#define rig_reopen(self, ...) (rig_open(self, __VA_ARGS__), rig_resume(self))

/* Returns the hash; four results are valid at a time. */
static inline const char *rig_hash(const rig *self) {
    static char hex[4][65];
    static int next;
    weft_error err = WEFT_ERROR_INIT;
    next = (next + 1) % 4;
    ck_assert_ok(weft_engine_hash(hex[next], self->session->engine, &err), err);
    return hex[next];
}

/* "out/checkpoints/step-2/NAME" */
static inline const char *rig_file(uint64_t step, const char *name) {
    char path[300];
    (void)snprintf(path, sizeof path, "out/checkpoints/step-%llu/%s", (unsigned long long)step, name);
    return scratch_path(path);
}

static inline bool rig_exists(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Saves checkpoints of steps 2 and 4 of a fresh run; returns the hashes of both. */
static inline void rig_two(char two[65], char four[65]) {
    rig run;
    rig_start(&run, NULL);
    rig_train(&run, 2);
    rig_save(&run);
    strcpy(two, rig_hash(&run));
    rig_train(&run, 4);
    rig_save(&run);
    strcpy(four, rig_hash(&run));
    rig_close(&run);
}

#endif
