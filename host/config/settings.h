/* host/config/settings.h: the keys that the host itself reads, section by section. A plugin's keys are in the same
 * sections ([model], [data], [optimizer], ...) and are not listed here. `[kind] plugin` names the plugin.
 *
 * Each list below is the only declaration of its keys: the struct, the validation, the default and the help are
 * generated from it. */
#ifndef WEFT_HOST_CONFIG_SETTINGS_H
#define WEFT_HOST_CONFIG_SETTINGS_H

#include "config/config.h"

/* clang-format off */
#define WEFT_RUN_KEYS(K)                                                                                               \
    K(PATH, out, "", "", "", WEFT_SAME, "Directory of the run's results; `weft train` needs it.")                      \
    K(I64, seed, "1", "[0,inf)", "", WEFT_SAME, "Seed of initialisation, split, order and sampling.")                  \
    K(I64, patience, "30", "[1,1M]", "seconds", 0, "How long ranks may all wait for one another before they hang.")    \
    K(STR, log_ranks, "0", "0 | all | 0,2,...", "", WEFT_HOST_FORMS,                                                   \
      "Ranks of several that print more than errors; rank 0 always.")                                                  \
    K(I64, metrics_every, "1", "[1,1M]", "steps", WEFT_SAME,                                                           \
      "Steps from one line of metrics.jsonl to the next; the first and the last have one too.")                        \
    K(ENUM, replay, "auto", "auto,yes,no", "", WEFT_SAME,                                                              \
      "Steps are recorded by their micro-batches' lengths and replayed; auto: where that can be; yes: an error "       \
      "where not.")                                                                                                    \
    K(BOOL, tensorboard, "no", "", "", WEFT_SAME, "Event files for TensorBoard too, in tensorboard/ of out.")          \
    K(BOOL, similarity, "no", "", "", WEFT_SAME,                                                                       \
      "Report with each evaluation how far the run has turned the mean last hidden state: 1 - cosine.")

#define WEFT_MODEL_KEYS(K)                                                                                             \
    K(PATH, path, NULL, "", "", WEFT_SAME, "Directory of the model: config.json and its safetensors files.")           \
    K(ENUM, start, "weights", "weights,fresh", "", WEFT_SAME,                                                          \
      "weights: read them from path; fresh: initialise them from path/config.json.")                                   \
    K(ENUM, base, "auto", "auto,nf4,nf4x64,int8,fp8,bf16,fp16,fp32", "", WEFT_SAME,                                    \
      "How frozen linears of the layers are stored; auto: as the model's files have them.")

#define WEFT_TOKENIZER_KEYS(K)                                                                                         \
    K(PATH, path, "", "", "", WEFT_SAME, "Directory of the tokenizer; empty: the model's.")                            \
    K(ENUM, bos, "auto", "auto,yes,no", "", WEFT_SAME, "BOS before documents and prompts; auto: as in its files.")     \
    K(ENUM, eos, "auto", "auto,yes,no", "", WEFT_SAME, "EOS after documents; auto: as in its files.")                  \
    K(LIST, add, "", "", "", WEFT_SAME,                                                                                \
      "Special tokens that are added, each with a row of the embeddings and the head: <|im_start|>, <|im_end|>.")      \
    K(ENUM, pad, "keep", "keep,add", "", WEFT_SAME,                                                                    \
      "add: a pad token is added to a tokenizer without one, and where it takes one a row to the embeddings.")         \
    K(STR, pad_token, "<pad>", "", "", WEFT_SAME, "How the token that is added is written.")                           \
    K(STR, end, "auto", "", "", WEFT_SAME,                                                                             \
      "Token that ends the text of a saved model, as <|im_end|>; auto: the one that the data's chat template writes "  \
      "after answers; keep: as in the model's files.")                                                                 \
    K(BOOL, padded, "no", "", "", WEFT_REMOVED, "fewer ids than the model's vocabulary are accepted; take the line out")

#define WEFT_TRAIN_KEYS(K)                                                                                             \
    K(I64, steps, "none", "[1,inf) | none", "steps", WEFT_SAME, "Optimizer steps; or set epochs.")                     \
    K(F64, epochs, "none", "(0,inf) | none", "epochs", WEFT_SAME, "Passes over the training rows; or set steps.")      \
    K(I64, global_batch, "1", "[1,1G]", "rows", WEFT_SAME, "Rows of one optimizer step, all replicas together.")       \
    K(I64, micro_batch, "1", "[1,1M]", "rows", WEFT_SAME, "Rows that the model processes at once.")                    \
    K(F64, clip, "none", "(0,inf) | none", "", WEFT_SAME, "Largest global gradient norm.")                             \
    K(ENUM, schedule, "constant", "constant,linear,cosine,step", "", WEFT_SAME,                                        \
      "Learning rate after the warm-up, over the steps that are left.")                                                \
    K(F64, warmup, "0", "[0,inf)", "steps", WEFT_SAME, "Warm-up in steps; below 1: a ratio of all steps.")             \
    K(ENUM, lr_scaling, "none", "none,linear,sqrt", "", WEFT_SAME,                                                     \
      "Learning rate by the batch: times global_batch / lr_batch, or its square root.")                                \
    K(I64, lr_batch, "none", "[1,1G] | none", "rows", WEFT_SAME,                                                       \
      "The global_batch for which [optimizer] lr was tuned.")                                                          \
    K(I64, step_every, "none", "[1,inf) | none", "steps", WEFT_SAME, "Steps between two decays of schedule = step.")   \
    K(F64, gamma, "0.85", "(0,1]", "", WEFT_SAME, "Factor of one decay of schedule = step.")                           \
    K(ENUM, precision, "fp32", "fp32,bf16,fp16", "", WEFT_SAME,                                                        \
      "bf16, fp16: GEMM operands and stored activations; sums, parameter gradients and master weights are fp32.")      \
    K(F64, loss_scale, "65536", "(0,1e38]", "", WEFT_SAME,                                                             \
      "fp16: initial loss scale, so that small gradients do not underflow.")                                           \
    K(F64, scale_growth, "2", "[1,1e6]", "", WEFT_SAME,                                                                \
      "fp16: factor on the scale after scale_every steps with finite gradients; 1: constant.")                         \
    K(F64, scale_backoff, "0.5", "(0,1)", "", WEFT_SAME,                                                               \
      "fp16: factor on the scale after a step with non-finite gradients, which makes no update.")                      \
    K(I64, scale_every, "2000", "[1,inf)", "steps", WEFT_SAME, "fp16: steps in a row after which the scale grows.")    \
    K(F64, scale_floor, "1", "(0,1e38]", "", WEFT_SAME, "fp16: a scale that falls below it ends the run.")             \
    K(ENUM, weights, "fp32", "fp32,bf16", "", WEFT_SAME,                                                               \
      "Type in which trained weights are stored; bf16: no masters, with precision = bf16 and an optimizer for it.")    \
    K(LIST, trainable, "auto", "", "", WEFT_SAME,                                                                      \
      "all, adapter, head, vocabulary, first:N, last:N, names with *; auto: the adapter (and added tokens), else all.")\
    K(BOOL, activation_checkpointing, "no", "", "", WEFT_SAME,                                                         \
      "Store only the input of each segment and recompute the rest: less memory, same bits.")

#define WEFT_EVAL_KEYS(K)                                                                                              \
    K(STR, every, "none", "none | N steps | N%", "", WEFT_SAME | WEFT_HOST_FORMS,                                      \
      "Evaluate every N steps (50) or N percent of all (5%), at the start, the end and each save; none: never.")

#define WEFT_CHECKPOINT_KEYS(K)                                                                                        \
    K(STR, every, "none", "none | N steps | N%", "", WEFT_SAME | WEFT_HOST_FORMS,                                      \
      "Save every N steps (50) or N percent of all (5%), and at the end; none: only when a signal stops the run.")     \
    K(I64, keep, "3", "[1,inf)", "checkpoints", WEFT_SAME, "Number of newest checkpoints that are kept.")              \
    K(BOOL, keep_best, "yes", "", "", WEFT_SAME, "Also keep the checkpoint with the lowest evaluation loss.")          \
    K(ENUM, dtype, "auto", "auto,fp32,bf16,fp16", "", WEFT_SAME, "Type of saved weights; auto: as the model's files.") \
    K(F64, max_shard, "5", "(0,1000000]", "GB", WEFT_SAME,                                                             \
      "Largest file of a saved model's weights, in 1e9 bytes; a larger model has several files and an index.")         \
    K(ENUM, async, "auto", "auto,yes,no", "", WEFT_SAME,                                                               \
      "Write checkpoints while training continues, from a copy in the host's memory; auto: with a device that "        \
      "has its own.")

/* In addition to the keys of the adapter's plugin. */
#define WEFT_ADAPTER_KEYS(K)                                                                                           \
    K(PATH, from, "", "", "", WEFT_SAME,                                                                               \
      "Directory of an adapter, as PEFT or a run wrote it, that is continued or measured; empty: a new one.")          \
    K(LIST, named, "", "", "", WEFT_SAME | WEFT_HOST_NAMED, "Adapters by name, for use: chat:DIR, math:DIR.")          \
    K(STR, use, "", "", "", WEFT_SAME, "The adapter of named that is used as from.")                                   \
    K(BOOL, any_base, "no", "", "", WEFT_SAME, "yes: an adapter that was made on other weights is taken as well.")

/* These apply if the plugin offers them (program/run.h). */
#define WEFT_STRATEGY_KEYS(K)                                                                                          \
    K(ENUM, reduce, "ordered", "ordered,tree,fast", "", WEFT_SAME | WEFT_HOST_OFFERED,                                 \
      "How micro-batch gradients are summed: ordered and tree have the same bits on any number of ranks.")             \
    K(ENUM, reduce_dtype, "fp32", "fp32,bf16,fp16", "", WEFT_SAME | WEFT_HOST_OFFERED,                                 \
      "bf16, fp16: rounds the gradient of each micro-batch before it is added; sums are fp32.")                        \
    K(I64, prefetch, "1", "[0,16]", "units", WEFT_SAME | WEFT_HOST_OFFERED,                                            \
      "Units that are gathered ahead of the one in use.")

#define WEFT_OPTIMIZER_KEYS(K)                                                                                         \
    K(ENUM, decay, "all", "all,matrices", "", WEFT_SAME | WEFT_HOST_OFFERED,                                           \
      "Parameters with weight decay: all, or only matrices.")                                                          \
    K(ENUM, states, "auto", "auto,fp32,bf16,8bit", "", WEFT_SAME,                                                      \
      "Type of optimizer states: as the optimizer declares them (fp32), bf16, or 8 bits with a scale of each 256.")

#define WEFT_PLUGINS_KEYS(K)                                                                                           \
    K(LIST, path, "", "", "", WEFT_PATHS, "Directories that are searched for plugins first.")                          \
    K(LIST, pin, "", "", "", WEFT_SAME, "Plugin files that must have this SHA-256: optimizer:lion=<64 hex digits>.")   \
    K(PATH, pin_list, "", "", "", 0, "File of more SHA-256, a line each, as sha256sum prints them.")                   \
    K(ENUM, trust, "any", "any,pinned", "", WEFT_SAME,                                                                 \
      "pinned: load only files with a SHA-256 in pin or pin_list; this includes built-in plugins.")                    \
    K(F64, compile_seconds, "300", "[0,inf)", "s", WEFT_SAME,                                                          \
      "Timeout for a call of a strategy, which ends the process with an error; 0: no timeout.")                        \
    K(F64, call_seconds, "60", "[0,inf)", "s", 0,                                                                      \
      "Duration after which a running plugin call is reported once; 0: no reports.")                                   \
    K(I64, compile_events, "16M", "[1,64M]", "instructions", WEFT_SAME,                                                \
      "Most instructions of one program of a strategy.")
/* clang-format on */

/* section, X-macro list */
#define WEFT_SETTINGS_SECTIONS(S)                                                                                      \
    S(run, WEFT_RUN_KEYS)                                                                                              \
    S(model, WEFT_MODEL_KEYS)                                                                                          \
    S(tokenizer, WEFT_TOKENIZER_KEYS)                                                                                  \
    S(train, WEFT_TRAIN_KEYS)                                                                                          \
    S(strategy, WEFT_STRATEGY_KEYS)                                                                                    \
    S(adapter, WEFT_ADAPTER_KEYS)                                                                                      \
    S(optimizer, WEFT_OPTIMIZER_KEYS)                                                                                  \
    S(eval, WEFT_EVAL_KEYS)                                                                                            \
    S(checkpoint, WEFT_CHECKPOINT_KEYS)                                                                                \
    S(plugins, WEFT_PLUGINS_KEYS)

/* weft_run_settings { const char *out; int64_t seed; }, weft_train_settings { int64_t steps; ... }, ... */
#define WEFT_SETTINGS_TYPE_(section, LIST)                                                                             \
    typedef struct weft_##section##_settings {                                                                         \
        LIST(WEFT_KEY_FIELD_)                                                                                          \
    } weft_##section##_settings;
WEFT_SETTINGS_SECTIONS(WEFT_SETTINGS_TYPE_)

/* Values of the ENUM keys, in the order of their names. */
typedef enum weft_base {
    WEFT_BASE_AUTO,
    WEFT_BASE_NF4,
    WEFT_BASE_NF4X64,
    WEFT_BASE_INT8,
    WEFT_BASE_FP8,
    WEFT_BASE_BF16,
    WEFT_BASE_FP16,
    WEFT_BASE_FP32
} weft_base;
typedef enum weft_trusting { WEFT_TRUST_ANY, WEFT_TRUST_PINNED } weft_trusting;
typedef enum weft_start { WEFT_START_WEIGHTS, WEFT_START_FRESH } weft_start;
typedef enum weft_pad_choice { WEFT_PAD_KEEP, WEFT_PAD_ADD } weft_pad_choice;
typedef enum weft_choice { WEFT_CHOICE_AUTO, WEFT_CHOICE_YES, WEFT_CHOICE_NO } weft_choice;
typedef enum weft_schedule_kind {
    WEFT_SCHEDULE_CONSTANT,
    WEFT_SCHEDULE_LINEAR,
    WEFT_SCHEDULE_COSINE,
    WEFT_SCHEDULE_STEP
} weft_schedule_kind;
typedef enum weft_lr_scaling { WEFT_LR_AS_IT_IS, WEFT_LR_LINEAR, WEFT_LR_SQRT } weft_lr_scaling;
typedef enum weft_precision { WEFT_PRECISION_FP32, WEFT_PRECISION_BF16, WEFT_PRECISION_FP16 } weft_precision;
typedef enum weft_stored { WEFT_STORED_FP32, WEFT_STORED_BF16 } weft_stored;
typedef enum weft_decay { WEFT_DECAY_ALL, WEFT_DECAY_MATRICES } weft_decay;
typedef enum weft_states { WEFT_STATES_AUTO, WEFT_STATES_FP32, WEFT_STATES_BF16, WEFT_STATES_8BIT } weft_states;
/* [strategy] reduce is a weft_reduce of weft/strategy.h. */
typedef enum weft_save_dtype { WEFT_SAVE_AUTO, WEFT_SAVE_FP32, WEFT_SAVE_BF16, WEFT_SAVE_FP16 } weft_save_dtype;

/* "none", "50" (steps) or "5%" (of all steps). */
typedef struct weft_interval {
    int64_t steps;  /* 0: not in steps */
    double percent; /* 0: not in percent; both 0: never */
} weft_interval;

/* Parses an interval. WEFT_E_USER: any other text; err lists the allowed forms without the key. */
weft_status weft_interval_parse(weft_interval *out, const char *text, weft_error *err);

/* Returns the steps between two events in a run of total_steps; percent is rounded up; 0: never. */
int64_t weft_interval_resolve(const weft_interval *self, int64_t total_steps);

typedef struct weft_settings {
#define WEFT_SETTINGS_MEMBER_(section, LIST) weft_##section##_settings section;
    WEFT_SETTINGS_SECTIONS(WEFT_SETTINGS_MEMBER_)
    weft_interval eval_every; /* [eval] every and [checkpoint] every, parsed */
    weft_interval checkpoint_every;
    char adapter_from[4096]; /* [adapter] from, or the directory of [adapter] use; "": unset */
} weft_settings;

/* Returns [train] precision or [strategy] reduce_dtype, a weft_precision, as a weft_dtype. */
int32_t weft_precision_dtype(int64_t precision);

/* One section of the host: its rows fill `size` bytes at `offset` of a weft_settings. */
typedef struct weft_settings_section {
    const char *section;
    const weft_key *keys;
    uint64_t n;
    size_t offset;
    size_t size;
} weft_settings_section;

/* Returns the i-th section; false past the end. */
bool weft_settings_table(weft_settings_section *out, size_t i);

/* Declares the keys of all host sections without reading them. */
void weft_settings_declare(weft_config *config);

/* Fills only this section of out, and checks the rules across its keys: [plugins] for its search path and [run] for the
 * ranks that print, before anything else; [model] and [adapter] for their directories, which determine the plugin if
 * the user sets none. */
weft_status weft_settings_load_section(weft_settings *out, const char *section, weft_config *config, weft_error *err);

/* Fills all sections of the host and checks the rules across their keys, except those of training. */
weft_status weft_settings_load(weft_settings *out, weft_config *config, weft_error *err);

/* Checks the requirements of training steps, saved or not: divisible batches, a complete schedule, and exactly one of
 * [train] steps and epochs. */
weft_status weft_settings_for_steps(const weft_settings *self, const weft_config *config, weft_error *err);
/* Checks the requirements of training: those of training steps, and [run] out. */
weft_status weft_settings_for_training(const weft_settings *self, const weft_config *config, weft_error *err);

/* Returns the warm-up updates in a run of total_steps: warmup itself, or its ratio rounded up. */
int64_t weft_warmup_resolve(double warmup, int64_t total_steps);

#endif
