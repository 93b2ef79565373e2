/* The strategy in SOURCE. OTHER_QUEUE_IF: it communicates on queue 2 instead of 1 where that is true. IN_COMPILE: a
 * function of this file, called first in compile; a failure is returned. */
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

#include SOURCE

static weft_status leave(weft_error *err) {
    (void)err;
    _exit(0);
}

static weft_status run_program(weft_error *err) {
    (void)err;
    (void)execlp("true", "true", (char *)NULL);
    return WEFT_OK;
}

static weft_status run_program_with_environment(weft_error *err) {
    char *words[] = {"true", NULL};
    (void)err;
    (void)execve("/bin/true", words, words);
    return WEFT_OK;
}

static weft_status fail(weft_error *err) {
    return weft_error_set(err, WEFT_E_PLUGIN, "compile was called");
}

#ifdef IN_COMPILE
static weft_status compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                           const weft_emitter *emitter, weft_error *err) {
    const weft_status status = IN_COMPILE(err);
    return status == WEFT_OK ? original.compile(host, config, job, rank, emitter, err) : status;
}
#endif

static void change(weft_strategy_plugin *to) {
    (void)to;
#ifdef IN_COMPILE
    to->compile = compile;
#endif
}
