/* The optimizer in SOURCE with a function of this file called first in a slot: IN_CREATE, IN_PREPARE, IN_DESTROY or
 * IN_UPDATE, the kernel body. */
#include "changed/changed.h"

#include SOURCE

#include <fenv.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A call: of which optimizer, and in prepare its update and its learning rate, which may be changed. */
typedef struct call {
    const void *self;
    unsigned long long update;
    double lr;
} call;

static const unsigned long long never = (unsigned long long)-1;

static void crash(call *c) {
    if (c->update == 2) *(volatile int *)0 = 1;
}

static void leave(call *c) {
    (void)c;
    exit(0);
}

/* Ends the process without what exit() runs, or a check of the plugin's calls finds. */
static void vanish(call *c) {
    if (c->update == 2) syscall(SYS_exit_group, 0);
}

/* Blocks update HOLD_AT until the file HOLD_UNTIL exists. */
static void hold(call *c) {
    const char *until = getenv("HOLD_UNTIL");
    while (c->update == number_in("HOLD_AT", never) && until != NULL && access(until, F_OK) != 0) usleep(10000);
}

/* Sleeps for SLEEP_MS, in update 2 if it is a prepare; with SLEEP_RANK only on that rank, if there are ranks. */
static void rest(call *c) {
    const unsigned long long rank = number_in("SLEEP_RANK", never);
    if (c->update != 0 && c->update != 2) return;
    if (rank == never || this_rank(rank) == rank) usleep((useconds_t)(1000 * number_in("SLEEP_MS", 0)));
}

/* The same in a process that is no rank. */
static void rest_before_ranks(call *c) {
    if (this_rank(never) == never) rest(c);
}

static void round_upward(call *c) {
    (void)c;
    fesetround(FE_UPWARD);
}

static void clear_umask(call *c) {
    (void)c;
    umask(0);
}

/* Logs self and lr to LATE_LOG, hangs in update HANG_AT, and overflows from update LATE_AT on. */
static void diverge(call *c) {
    FILE *log = getenv("LATE_LOG") == NULL ? NULL : fopen(getenv("LATE_LOG"), "a");
    if (log != NULL) {
        fprintf(log, "%p %.17g\n", c->self, c->lr);
        fclose(log);
    }
    while (c->update == number_in("HANG_AT", never)) (void)*(volatile double *)&c->lr;
    if (c->update >= number_in("LATE_AT", never)) c->lr = 1e300 * 1e300;
}

#ifdef IN_CREATE
static weft_status create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    call c = {0};
    IN_CREATE(&c);
    return original.create(out, host, config, err);
}
#endif

#ifdef IN_DESTROY
static void destroy(weft_optimizer *self) {
    call c = {.self = self};
    IN_DESTROY(&c);
    original.destroy(self);
}
#endif

#ifdef IN_PREPARE
static weft_status prepare(weft_optimizer *self, void *hp, const weft_step_info *step, weft_error *err) {
    weft_step_info given = *step;
    call c = {self, step->update, step->lr};
    IN_PREPARE(&c);
    given.lr = c.lr;
    return original.prepare(self, hp, &given, err);
}
#endif

#ifdef IN_UPDATE
static const weft_elementwise *kernel;

static void body(const weft_elementwise_call *arguments) {
    call c = {0};
    if (arguments->range->offset == 0) IN_UPDATE(&c);
    kernel->cpu(arguments);
}

static const weft_elementwise *update(const weft_optimizer *self) {
    static weft_elementwise with_body;
    kernel = original.update(self);
    with_body = *kernel;
    with_body.cpu = body;
    return &with_body;
}
#endif

static void change(weft_optimizer_plugin *to) {
#ifdef IN_CREATE
    to->create = create;
#endif
#ifdef IN_DESTROY
    to->destroy = destroy;
#endif
#ifdef IN_PREPARE
    to->prepare = prepare;
#endif
#ifdef IN_UPDATE
    to->update = update;
#endif
}
