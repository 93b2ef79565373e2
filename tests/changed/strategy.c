/* The strategy in SOURCE. OTHER_QUEUE_IF: it communicates on queue 2 instead of 1 where that is true.
 * EMIT_TIMES(kind): how often it emits an instruction that has no operands. REPEAT_IF: it emits its program twice.
 * IN_COMPILE: a function of this file, called first in compile; a failure is returned. */
#include "changed/changed.h"

#include <weft/emit.h>

#ifdef OTHER_QUEUE_IF
static inline int32_t other_queue(int32_t queue) {
    return queue == 1 && (OTHER_QUEUE_IF) ? 2 : queue;
}
#define weft_emit_reduce(e, unit, micro_batch, scope, queue)                                                           \
    weft_emit_reduce(e, unit, micro_batch, scope, other_queue(queue))
#define weft_emit_gather(e, unit, payload, queue) weft_emit_gather(e, unit, payload, other_queue(queue))
#endif

#ifdef EMIT_TIMES
static inline void emit_times(weft_emit *e, int32_t kind) {
    for (int i = 0; i < (EMIT_TIMES(kind)); i++) weft_emit_plain(e, kind);
}
#define weft_emit_plain(e, kind) emit_times(e, kind)
#endif

#include SOURCE

#ifndef REPEAT_IF
#define REPEAT_IF 0
#endif

static weft_status go_on(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    (void)err;
    return WEFT_OK;
}

static weft_status hang(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    (void)err;
    for (volatile int i = 0;; i = 1 - i) continue;
}

static weft_status leave(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    (void)err;
    _exit(0);
}

static weft_status run_program(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    (void)err;
    (void)execlp("true", "true", (char *)NULL);
    return WEFT_OK;
}

static weft_status run_program_with_environment(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    char *words[] = {"true", NULL};
    (void)err;
    (void)execve("/bin/true", words, words);
    return WEFT_OK;
}

static weft_status fail(const weft_strategy_job *job, weft_error *err) {
    (void)job;
    return weft_error_set(err, WEFT_E_PLUGIN, "compile was called");
}

static weft_status fail_to_generate(const weft_strategy_job *job, weft_error *err) {
    return job->mode == WEFT_MODE_GENERATE ? fail(job, err) : WEFT_OK;
}

#ifndef IN_COMPILE
#define IN_COMPILE go_on
#endif

static weft_status compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                           const weft_emitter *emitter, weft_error *err) {
    weft_status status = IN_COMPILE(job, err);
    if (status == WEFT_OK) status = original.compile(host, config, job, rank, emitter, err);
    if (status == WEFT_OK && (REPEAT_IF)) status = original.compile(host, config, job, rank, emitter, err);
    return status;
}

static void change(weft_strategy_plugin *to) {
    to->compile = compile;
}
