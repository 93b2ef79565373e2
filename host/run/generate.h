/* host/run/generate.h: the continuation of a prompt, greedy or sampled, with or without a key-value cache. */
#ifndef WEFT_HOST_RUN_GENERATE_H
#define WEFT_HOST_RUN_GENERATE_H

#include "model/stop_ids.h"
#include "run/engine.h"

typedef struct weft_generate_options {
    int64_t tokens;            /* most that are made */
    double temperature;        /* 0: greedy */
    double top_p;              /* in (0, 1]; 1: all */
    int64_t top_k;             /* 0: all */
    double repetition_penalty; /* above 0; 0 and 1: none */
    uint64_t seed;
    bool ignore_eos;
    bool cache; /* false: every token from the complete text */
    /* (optional) Called with the plan before memory is allocated; a failure ends generation. */
    weft_status (*check)(void *context, const weft_engine *engine, weft_error *err);
    void *check_context;
} weft_generate_options;

/* Called with each new id as it is made. */
typedef weft_status weft_generate_sink(void *context, int32_t id, weft_error *err);

typedef struct weft_generator weft_generator;

/* Model, weights and memory for a prompt of n_prompt ids and options->tokens more. */
weft_status weft_generator_create(weft_generator **out, const weft_run *run, int64_t n_prompt,
                                  const weft_generate_options *options, weft_error *err);
void weft_generator_destroy(weft_generator *generator); /* NULL is fine */
const weft_plan *weft_generator_plan(const weft_generator *generator);

/* Runs positions [past, n) of a text, with those before `past` in the cache, and returns the logits of the last one:
 * vocabulary fp32, valid until the next call. */
weft_status weft_generator_logits(weft_generator *generator, const float **out, const int32_t *text, int64_t past,
                                  int64_t n, weft_error *err);
/* prompt: at least one id. Ends after options->tokens ids, or with one of `stop` (which the sink does not get). */
weft_status weft_generator_run(weft_generator *generator, const int32_t *prompt, int64_t n_prompt,
                               const weft_stop_ids *stop, weft_generate_sink *sink, void *context, weft_error *err);

/* Divides the logits above 0 of the ids that the text has, and multiplies those below 0, each once, as
 * repetition_penalty of transformers (Keskar et al., arXiv 1909.05858). out: n, may not be `logits`. */
void weft_penalize(float *out, const float *logits, int64_t n, const int32_t *text, int64_t n_text, double penalty);
/* Returns an id for a row of logits. n: vocabulary; position: of the new id, part of the random number's key. */
int32_t weft_sample(const float *logits, int64_t n, const weft_generate_options *options, uint64_t position,
                    float *scratch);

#endif
