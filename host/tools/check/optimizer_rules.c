/* host/tools/check/optimizer_rules.c: rules for optimizers. */
#include "base/text.h"
#include "plugin/enter.h"
#include "run/validate.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "tools/check/rule.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/optimizer.h>

/* ---- an update's body, compiled from its source text ---- */

typedef void weft_body_fn(const weft_elementwise_call *call);

extern char **environ;

#define SOURCE  "body.c"
#define LIBRARY "./body.so"
#define LOG     "body.log"

enum { NOT_FOUND = 127 }; /* exit status: the program does not exist */

/* ---- the source ---- */

static const char declarations[] =
    "#include <math.h>\n#include <stdint.h>\n"
    "typedef struct weft_range {\n    uint32_t struct_size, flags;\n    int64_t offset, length;\n"
    "    float lr_scale, decay;\n} weft_range;\n"
    "typedef struct weft_call {\n    uint32_t struct_size, flags;\n    float *weight;\n    const float *gradient;\n"
    "    float *states[4];\n    const void *hp;\n    const weft_range *range;\n    int64_t begin, end;\n"
    "    float coefficient;\n    int32_t reserved;\n} weft_call;\n"
    "static inline __attribute__((unused)) float weft_round_bf16(float x) {\n"
    "    union { float number; uint32_t bits; } u = {x};\n"
    "    u.bits = (u.bits + 0x7FFFu + ((u.bits >> 16) & 1u)) & 0xFFFF0000u;\n    return u.number;\n}\n";

static weft_status write_source(const weft_elementwise *update, weft_error *err) {
    FILE *to = fopen(SOURCE, "we");
    if (to == NULL) return weft_error_set(err, WEFT_E_SYSTEM, SOURCE " cannot be written: %s", strerror(errno));
    (void)fprintf(to, "%stypedef struct %s {\n%s\n} weft_hp;\n", declarations, update->hp_name, update->hp_fields);
    (void)fprintf(to, "const int64_t weft_hp_bytes = (int64_t)sizeof(weft_hp);\n"
                      "void weft_body(const weft_call *call) {\n"
                      "    const weft_hp *const hp = (const weft_hp *)call->hp;\n"
                      "    const weft_range *const range = call->range;\n    (void)hp, (void)range;\n"
                      "    for (int64_t weft_i = call->begin; weft_i < call->end; weft_i++) {\n"
                      "        float w = call->weight[weft_i];\n"
                      "        const float g = call->gradient[weft_i] * call->coefficient;\n");
    for (int64_t s = 0; s < WEFT_MAX_STATES; s++) {
        if (s < update->n_states) (void)fprintf(to, "        float s%d = call->states[%d][weft_i];\n", (int)s, (int)s);
        else (void)fprintf(to, "        float s%d = 0.0f;\n", (int)s);
    }
    (void)fprintf(to, "#line 1 \"%s\"\n%s\n        call->weight[weft_i] = w;\n        (void)g;\n", update->name,
                  update->body);
    for (int64_t s = 0; s < WEFT_MAX_STATES; s++) {
        if (s < update->n_states) (void)fprintf(to, "        call->states[%d][weft_i] = s%d;\n", (int)s, (int)s);
        else (void)fprintf(to, "        (void)s%d;\n", (int)s);
    }
    (void)fprintf(to, "    }\n}\n");
    if (fclose(to) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, SOURCE " cannot be written: %s", strerror(errno));
}

/* ---- the compiler ---- */

/* Returns the exit status; NOT_FOUND: the compiler does not exist. */
static int run_compiler(const char *compiler) {
    const char *words[] = {compiler,
                           "-std=gnu11",
                           "-O2",
                           "-fPIC",
                           "-shared",
                           "-fno-math-errno",
                           "-ffp-contract=off",
                           "-fno-fast-math",
                           "-Werror=implicit-function-declaration",
                           "-o",
                           LIBRARY,
                           SOURCE,
                           "-lm",
                           NULL};
    posix_spawn_file_actions_t files;
    pid_t child = -1;
    int status = NOT_FOUND << 8, failed;
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, LOG, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    failed = posix_spawnp(&child, compiler, &files, NULL, (char *const *)(uintptr_t)words, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    if (failed != 0) return NOT_FOUND;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Copies the first error of the log. */
static void read_reason(char *out, size_t size) {
    char line[600];
    FILE *file = fopen(LOG, "re");
    (void)snprintf(out, size, "the compiler prints no message");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "error:") == NULL && strstr(line, "undefined") == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, size, "%.500s", line);
        break;
    }
    if (file != NULL) (void)fclose(file);
    weft_words_sanitize(out);
}

static weft_status compile(weft_error *err) {
    const char *const compilers[] = {getenv("CC"), "cc", "gcc", "clang"};
    char why[600];
    int status = NOT_FOUND;
    for (size_t i = 0; i < sizeof compilers / sizeof *compilers && status == NOT_FOUND; i++)
        if (compilers[i] != NULL && compilers[i][0] != '\0') status = run_compiler(compilers[i]);
    if (status == 0) return WEFT_OK;
    if (status == NOT_FOUND)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "no C compiler is here (CC, cc, gcc, clang), so that the text of the body cannot be "
                              "compared with its function");
    read_reason(why, sizeof why);
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "the text of its body does not compile on its own, as a device requires: %s. Allowed in a "
                          "body: w, g, s0 to s3, hp, range and functions of <math.h>, but no names of its file",
                          why);
}

/* Compiles the text as a device does: with its hp, its range and <math.h>, and without floating-point contraction.
 * Works in the current directory; the function stays loaded. WEFT_E_UNSUPPORTED: no C compiler was found ($CC, cc, gcc,
 * clang). WEFT_E_PLUGIN: the text does not compile on its own. hp_bytes: size of the hp struct. [main] */
static weft_status weft_body_compile(weft_body_fn **out, int64_t *hp_bytes, const weft_elementwise *update,
                                     weft_error *err) {
    const int64_t *bytes = NULL;
    void *library = NULL, *symbol = NULL;
    weft_status status = write_source(update, err);
    if (status == WEFT_OK) status = compile(err);
    if (status != WEFT_OK) return status;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the text of its body does not link on its own, as a device requires: %s. A body may not "
                              "use names of its file",
                              dlerror());
    symbol = dlsym(library, "weft_body");
    bytes = (const int64_t *)dlsym(library, "weft_hp_bytes");
    if (symbol == NULL || bytes == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "the compiled body has no function");
    memcpy(out, &symbol, sizeof symbol);
    *hp_bytes = *bytes;
    return WEFT_OK;
}

enum { ELEMENTS = 1031, MARGIN = 64, ALL = ELEMENTS + 2 * MARGIN, STEPS = 5 };

#define EDGE 12345.0f /* content next to a call's elements, which must not change */

typedef struct instance {
    const weft_optimizer_plugin *table;
    weft_optimizer *made;
    weft_optimizer_facts facts;
    weft_body_fn *body; /* the compiled update text; NULL: the plugin's own function */
} instance;

static void instance_close(instance *self) {
    if (self->made != NULL) WEFT_PLUGIN_NOTIFY(self->table, destroy, self->made);
    self->made = NULL;
}

static weft_status instance_open(instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                                 weft_error *err) {
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->table = weft_plugin_under_test_table(tested, optimizer);
    weft_plugin_call_begin(&call, tested->loaded, "create");
    status = self->table->create(&self->made, weft_plugin_under_test_host(poison), tested->config, err);
    status = weft_plugin_call_made(&call, status, self->made, err);
    if (status == WEFT_OK)
        status = weft_optimizer_validate(&self->facts, self->table, self->made, tested->loaded->plugin->id, err);
    return status;
}

static double step_size(const instance *self) {
    return WEFT_HAS(self->table, lr) && self->table->lr != NULL ? self->table->lr(self->made) : 1.0;
}

/* Fills hp with a poison byte first, so that fields missed by `prepare` are visible. */
static weft_status prepare(const instance *self, void *hp, uint64_t update, double lr, uint8_t poison,
                           weft_error *err) {
    const weft_step_info step = {(uint32_t)sizeof step, 0, update, lr};
    weft_status status = WEFT_OK;
    memset(hp, poison, WEFT_MAX_HP);
    weft_plugin_under_test_asks("update %llu", (unsigned long long)step.update);
    WEFT_PLUGIN_CALL(status, self->table, prepare, err, self->made, hp, &step);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "prepare fails without an error message");
    for (int64_t i = self->facts.hp_bytes; i < WEFT_MAX_HP && status == WEFT_OK; i++)
        if (((unsigned char *)hp)[i] != poison)
            status = WEFT_BROKEN(err, "prepare writes byte %lld of hp, and its hp_size is %lld", (long long)i,
                                 (long long)self->facts.hp_bytes);
    return status;
}

/* ---- updated weights ---- */

typedef struct bench {
    float weight[ALL], gradient[ALL], states[WEFT_MAX_STATES][ALL];
} bench;

static float noise(uint32_t i, uint32_t salt) {
    uint32_t x = i * 0x9e3779b1u + salt * 0x85ebca77u;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 13;
    return (float)(x >> 8) / 8388608.0f - 1.0f;
}

static void bench_fill(bench *self) {
    for (uint32_t i = 0; i < ALL; i++) {
        const bool is_edge = i < MARGIN || i >= ALL - MARGIN;
        self->weight[i] = is_edge ? EDGE : noise(i, 1);
        self->gradient[i] = is_edge ? EDGE : noise(i, 2);
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++) self->states[s][i] = is_edge ? EDGE : 0.0f;
    }
}

static void update(const instance *self, bench *on, const void *hp, const weft_range *range, int64_t begin,
                   int64_t end) {
    weft_elementwise_call call;
    weft_call_record before;
    memset(&call, 0, sizeof call);
    call.struct_size = (uint32_t)sizeof call;
    call.weight = on->weight;
    call.gradient = on->gradient;
    for (int64_t s = 0; s < self->facts.n_states; s++) call.states[s] = on->states[s];
    call.hp = hp;
    call.range = range;
    call.begin = begin;
    call.end = end;
    call.coefficient = 1.0f;
    before = weft_plugin_enter(self->table, "update");
    weft_plugin_under_test_asks("elements %lld to %lld", (long long)begin, (long long)end);
    if (self->body != NULL) self->body(&call);
    else self->table->update(self->made)->cpu(&call);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
}

static weft_range whole_range(float lr_scale, float decay) {
    const weft_range range = {(uint32_t)sizeof range, 0, MARGIN, ELEMENTS, lr_scale, decay};
    return range;
}

/* Updates all elements once, by a step size. */
static weft_status step_once(const instance *self, bench *on, uint64_t number, double lr, const weft_range *range,
                             weft_error *err) {
    unsigned char hp[WEFT_MAX_HP];
    const weft_status status = prepare(self, hp, number, lr, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) update(self, on, hp, range, MARGIN, MARGIN + ELEMENTS);
    return status;
}

/* ---- sequences of updates ---- */

/* Some updates with different gradients. */
typedef struct course {
    double schedule; /* factor of the optimizer's own step size */
    float lr_scale, decay;
    int64_t steps;
    bool from_zero; /* all weights start at zero, so weight decay has no effect */
} course;

static weft_status follow(bench *on, const weft_plugin_under_test *tested, const course *by, weft_error *err) {
    const weft_range range = whole_range(by->lr_scale, by->decay);
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    bench_fill(on);
    for (int64_t i = MARGIN; i < MARGIN + ELEMENTS && by->from_zero; i++) on->weight[i] = 0.0f;
    for (int64_t step = 1; step <= by->steps && status == WEFT_OK; step++) {
        for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = noise(i, 2 + (uint32_t)step);
        status = step_once(&self, on, (uint64_t)step, by->schedule * step_size(&self), &range, err);
    }
    instance_close(&self);
    return status;
}

/* Returns the first element where two courses differ by more than rounding; -1: none differs. */
static int32_t parted(const bench *a, const bench *b, bool from_zero) {
    for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) {
        const double start = from_zero ? 0.0 : (double)noise((uint32_t)i, 1);
        const double one = (double)a->weight[i] - start, two = (double)b->weight[i] - start;
        const double most = 1e-4 * fmax(fabs(one), fabs(two)) + 5e-7 * fabs(start) + 1e-37;
        if (fabs(one - two) > most) return i;
    }
    return -1;
}

/* ---- the rules ---- */

static bool same_facts(const weft_optimizer_facts *a, const weft_optimizer_facts *b) {
    if (a->n_states != b->n_states || a->hp_bytes != b->hp_bytes) return false;
    for (int64_t s = 0; s < a->n_states; s++)
        if (strcmp(a->states[s].name, b->states[s].name) != 0 || a->states[s].dtype != b->states[s].dtype) return false;
    return true;
}

static weft_status declares_alike(weft_plugin_under_test *tested, weft_error *err) {
    instance one, two = {0};
    weft_optimizer_facts again;
    const char *id = tested->loaded->plugin->id;
    weft_status status = instance_open(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&two, tested, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = weft_optimizer_validate(&again, one.table, one.made, id, err);
    if (status == WEFT_OK && (!same_facts(&one.facts, &two.facts) || !same_facts(&one.facts, &again)))
        status = WEFT_BROKEN(err, "states or hp_size return different results on a second call");
    instance_close(&two);
    instance_close(&one);
    return status;
}

/* Checks that `prepare` fills hp for every step, because a schedule may start and end with a step size of zero. */
static weft_status fills_all(const instance *self, weft_error *err) {
    const double sizes[] = {0, step_size(self)};
    unsigned char one[WEFT_MAX_HP], two[WEFT_MAX_HP];
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < 4 && status == WEFT_OK; i++) {
        const uint64_t number = i < 2 ? 1 : 1000;
        status = prepare(self, one, number, sizes[i % 2], WEFT_POISON_ONE, err);
        if (status == WEFT_OK) status = prepare(self, two, number, sizes[i % 2], WEFT_POISON_TWO, err);
        if (status == WEFT_OK && memcmp(one, two, (size_t)self->facts.hp_bytes) != 0)
            status = WEFT_BROKEN(err, "prepare of update %llu with a step size of %g leaves bytes of hp unset",
                                 (unsigned long long)number, sizes[i % 2]);
    }
    return status;
}

/* Answers for weft_other_keys: the declaration and the prepared hp. */
static weft_status open_any(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return instance_open(made, tested, WEFT_POISON_ONE, err);
}

static void close_any(void *made) {
    instance_close(made);
}

static weft_status ask(weft_answer *to, void *made, weft_error *err) {
    const instance *self = made;
    const double size = step_size(self);
    unsigned char hp[WEFT_MAX_HP];
    weft_status status = WEFT_OK;
    WEFT_ANSWER_ADD(to, self->facts.n_states);
    WEFT_ANSWER_ADD(to, self->facts.hp_bytes);
    WEFT_ANSWER_ADD(to, size);
    for (int64_t s = 0; s < self->facts.n_states; s++) {
        weft_answer_add_text(to, self->facts.states[s].name);
        WEFT_ANSWER_ADD(to, self->facts.states[s].dtype);
        WEFT_ANSWER_ADD(to, self->facts.states[s].flags);
    }
    for (uint64_t number = 1; number <= 1000 && status == WEFT_OK; number *= 10) {
        status = prepare(self, hp, number, 0.01, WEFT_POISON_ONE, err);
        if (status == WEFT_OK) weft_answer_add(to, hp, (size_t)self->facts.hp_bytes);
    }
    return status;
}

static const weft_answers answers = {sizeof(instance), open_any, close_any, ask};

static weft_status prepares_alike(weft_plugin_under_test *tested, weft_error *err) {
    unsigned char first[WEFT_MAX_HP], other[WEFT_MAX_HP], later[WEFT_MAX_HP];
    instance one = {0}, two = {0};
    weft_status status = weft_other_keys(tested, &answers, err);
    if (status == WEFT_OK) status = instance_open(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = instance_open(&two, tested, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = prepare(&one, first, 3, 0.01, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = prepare(&one, later, 7, 0.02, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = prepare(&one, other, 3, 0.01, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && memcmp(first, other, (size_t)one.facts.hp_bytes) != 0)
        status = WEFT_BROKEN(err, "prepare of update 3 writes different bytes after update 7 was prepared: it depends "
                                  "on earlier calls, or leaves bytes of hp unset");
    if (status == WEFT_OK) status = prepare(&two, later, 3, 0.01, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && memcmp(first, later, (size_t)one.facts.hp_bytes) != 0)
        status = WEFT_BROKEN(err, "prepare writes different bytes in a second instance with the same keys");
    if (status == WEFT_OK) status = fills_all(&one, err);
    instance_close(&two);
    instance_close(&one);
    return status;
}

/* Runs some updates in calls of `piece` elements. */
static weft_status run_body(const weft_plugin_under_test *tested, bench *on, int64_t piece, uint8_t poison,
                            weft_body_fn *body, weft_error *err) {
    const weft_range range = whole_range(0.5f, 1.0f);
    unsigned char hp[WEFT_MAX_HP];
    instance self;
    weft_status status = instance_open(&self, tested, poison, err);
    self.body = body;
    bench_fill(on);
    for (uint64_t step = 1; step <= STEPS && status == WEFT_OK; step++) {
        status = prepare(&self, hp, step, step_size(&self), poison, err);
        for (int64_t at = MARGIN; at < MARGIN + ELEMENTS && status == WEFT_OK; at += piece)
            update(&self, on, hp, &range, at, at + piece < MARGIN + ELEMENTS ? at + piece : MARGIN + ELEMENTS);
    }
    instance_close(&self);
    return status;
}

static weft_status run_updates(const weft_plugin_under_test *tested, bench *on, int64_t piece, uint8_t poison,
                               weft_error *err) {
    return run_body(tested, on, piece, poison, NULL, err);
}

/* ---- update text ---- */

static weft_status compile_body(weft_body_fn **out, const weft_plugin_under_test *tested, weft_error *err) {
    const weft_elementwise *kernel = NULL;
    instance self;
    int64_t bytes = 0;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) WEFT_PLUGIN_QUERY(kernel, self.table, update, self.made);
    if (status == WEFT_OK) status = weft_body_compile(out, &bytes, kernel, err);
    if (status == WEFT_OK && bytes != self.facts.hp_bytes)
        status = WEFT_BROKEN(err, "%s has %lld bytes by its members, and hp_size is %lld", kernel->hp_name,
                             (long long)bytes, (long long)self.facts.hp_bytes);
    instance_close(&self);
    return status;
}

static weft_status compare_bodies(const bench *own, const bench *text, weft_error *err) {
    for (int32_t i = 0; i < ALL; i++) {
        bool same = memcmp(&own->weight[i], &text->weight[i], sizeof(float)) == 0;
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++)
            same = same && memcmp(&own->states[s][i], &text->states[s][i], sizeof(float)) == 0;
        if (!same)
            return WEFT_BROKEN(err,
                               "element %d is %.9g after %d updates by its function, and %.9g by the text of its body, "
                               "which a GPU compiles: it was built with contraction of products and sums (build it "
                               "with -ffp-contract=off), or its function is of another text",
                               i - MARGIN, (double)own->weight[i], STEPS, (double)text->weight[i]);
    }
    return WEFT_OK;
}

/* Checks the text against the host function, because a GPU compiles its kernel from the text. */
static weft_status follows_its_text(weft_plugin_under_test *tested, weft_error *err) {
    bench on[2];
    weft_body_fn *body = NULL;
    weft_status status = compile_body(&body, tested, err);
    if (status == WEFT_OK) status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = run_body(tested, &on[1], ELEMENTS, WEFT_POISON_ONE, body, err);
    return status == WEFT_OK ? compare_bodies(&on[0], &on[1], err) : status;
}

static weft_status cuts_alike(weft_plugin_under_test *tested, weft_error *err) {
    bench on[2];
    weft_status status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = run_updates(tested, &on[1], 13, WEFT_POISON_TWO, err);
    for (int32_t i = 0; i < ALL && status == WEFT_OK; i++)
        if (memcmp(&on[0].weight[i], &on[1].weight[i], sizeof(float)) != 0)
            status = WEFT_BROKEN(err,
                                 "element %d is %.9g after %d updates in one call, and %.9g in calls of 13 elements: "
                                 "the result depends on the first element of a call",
                                 i - MARGIN, (double)on[0].weight[i], STEPS, (double)on[1].weight[i]);
    return status;
}

static weft_status stays_inside(weft_plugin_under_test *tested, weft_error *err) {
    bench on;
    weft_status status = run_updates(tested, &on, ELEMENTS, WEFT_POISON_ONE, err);
    for (int32_t i = 0; i < ALL && status == WEFT_OK; i++) {
        const bool is_edge = i < MARGIN || i >= ALL - MARGIN;
        bool touched = is_edge && on.weight[i] != EDGE;
        for (int32_t s = 0; s < WEFT_MAX_STATES; s++) touched = touched || (is_edge && on.states[s][i] != EDGE);
        if (touched)
            status = WEFT_BROKEN(err, "the update writes %d elements outside of its range",
                                 i < MARGIN ? MARGIN - i : i - (ALL - MARGIN) + 1);
        else if (!is_edge && on.gradient[i] != noise((uint32_t)i, 2))
            status = WEFT_BROKEN(err, "the update changes the gradient");
    }
    return status;
}

/* Runs one update with the given weights and gradients. lr below 0: the optimizer's own. */
static weft_status update_once(const weft_plugin_under_test *tested, bench *on, double lr, const weft_range *range,
                               weft_error *err) {
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = step_once(&self, on, 1, lr < 0 ? step_size(&self) : lr, range, err);
    instance_close(&self);
    return status;
}

static weft_status stays_put(const bench *on, const char *why, weft_error *err) {
    for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++)
        if (on->weight[i] != noise(i, 1))
            return WEFT_BROKEN(err, "a weight changes from %.9g to %.9g although %s", (double)noise(i, 1),
                               (double)on->weight[i], why);
    return WEFT_OK;
}

/* Checks that lr_scale 0.5 is equivalent to a schedule of 0.5, and lr_scale 2 with schedule 0.25, too. */
static weft_status scales_alike(const weft_plugin_under_test *tested, weft_error *err) {
    const course half = {0.5, 1.0f, 1.0f, STEPS, false};
    const course scaled[] = {{1.0, 0.5f, 1.0f, STEPS, false}, {0.25, 2.0f, 1.0f, STEPS, false}};
    bench on[2];
    weft_status status = follow(&on[0], tested, &half, err);
    for (int32_t s = 0; s < 2 && status == WEFT_OK; s++) {
        int32_t at = -1;
        status = follow(&on[1], tested, &scaled[s], err);
        if (status == WEFT_OK) at = parted(&on[0], &on[1], false);
        if (at >= 0)
            status = WEFT_BROKEN(err,
                                 "a weight changes from %.9g to %.9g by %g times its step size under lr_scale = %g, "
                                 "and to %.9g by half of it under 1: lr_scale must multiply the step size",
                                 (double)noise((uint32_t)at, 1), (double)on[1].weight[at], scaled[s].schedule,
                                 (double)scaled[s].lr_scale, (double)on[0].weight[at]);
    }
    return status;
}

static weft_status follows_the_step_size(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range full = whole_range(1.0f, 1.0f), none = whole_range(0.0f, 1.0f);
    bench on;
    weft_status status = WEFT_OK;
    bench_fill(&on);
    status = update_once(tested, &on, 0.0, &full, err);
    if (status == WEFT_OK) status = stays_put(&on, "the step size is zero", err);
    bench_fill(&on);
    if (status == WEFT_OK) status = update_once(tested, &on, -1, &none, err);
    if (status == WEFT_OK) status = stays_put(&on, "its range has lr_scale = 0", err);
    return status == WEFT_OK ? scales_alike(tested, err) : status;
}

/* ---- key lr ---- */

static weft_status gives_its_key(const weft_plugin_under_test *tested, const weft_key *key, weft_error *err) {
    const double value = *(const double *)weft_plugin_under_test_value(tested, key);
    instance self;
    double given = value;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) given = step_size(&self);
    if (status == WEFT_OK && !(fabs(given - value) <= 1e-6 * fabs(value)))
        status = WEFT_BROKEN(err, "its slot lr returns %.9g and its key lr is %.9g", given, value);
    instance_close(&self);
    return status;
}

/* Checks without weight decay: half the key with the full schedule equals the full key with half the schedule. */
static weft_status shares_with_schedule(const weft_plugin_under_test *whole, const weft_plugin_under_test *half,
                                        double value, weft_error *err) {
    const course by_schedule = {0.5, 1.0f, 0.0f, 1, true}, by_key = {1.0, 1.0f, 0.0f, 1, true};
    bench on[2];
    int32_t at = -1;
    weft_status status = follow(&on[0], whole, &by_schedule, err);
    if (status == WEFT_OK) status = follow(&on[1], half, &by_key, err);
    if (status == WEFT_OK) at = parted(&on[0], &on[1], true);
    if (at >= 0)
        status = WEFT_BROKEN(err,
                             "a weight of 0 becomes %.9g with lr = %.9g and a schedule of 0.5, and %.9g with lr = %.9g "
                             "and a schedule of 1: use step->lr, which contains the key and the schedule once each",
                             (double)on[0].weight[at], value, (double)on[1].weight[at], value / 2);
    return status;
}

static weft_status follows_its_key(weft_plugin_under_test *tested, weft_error *err) {
    const weft_key *key = weft_plugin_under_test_key(tested, "lr", WEFT_KEY_F64);
    const weft_optimizer_plugin *table = weft_plugin_under_test_table(tested, optimizer);
    weft_plugin_under_test_other whole = {0}, half = {0};
    weft_status status = WEFT_OK;
    double value = 0;
    if (key == NULL) return WEFT_MOOT(tested, err, "it has no key lr that is a number, and need not");
    value = *(const double *)weft_plugin_under_test_value(tested, key);
    if (!(value > 0)) value = 1e-3; /* a step size of zero shows no effect */
    status = weft_plugin_under_test_open_other(&whole, tested, "lr", value, err);
    if (status == WEFT_OK) status = weft_plugin_under_test_open_other(&half, tested, "lr", value / 2, err);
    if (status == WEFT_E_USER) status = WEFT_E_UNSUPPORTED; /* with the message that rejects the number */
    if (status == WEFT_OK && WEFT_HAS(table, lr) && table->lr != NULL) {
        status = gives_its_key(&whole.tested, key, err);
        if (status == WEFT_OK) status = gives_its_key(&half.tested, key, err);
    }
    if (status == WEFT_OK) status = shares_with_schedule(&whole.tested, &half.tested, value, err);
    weft_plugin_under_test_close_other(&half);
    weft_plugin_under_test_close_other(&whole);
    return status;
}

/* ---- weight decay ---- */

/* Runs a course with the range's `decay` and one key set to `value` (key NULL: unchanged). WEFT_E_USER: rejected. */
static weft_status decay_by(bench *on, const weft_plugin_under_test *tested, const char *key, double value, float decay,
                            weft_error *err) {
    const course by = {1.0, 1.0f, decay, STEPS, false};
    weft_plugin_under_test_other other = {0};
    weft_status status = WEFT_OK;
    if (key == NULL) return follow(on, tested, &by, err);
    status = weft_plugin_under_test_open_other(&other, tested, key, value, err);
    if (status == WEFT_OK) status = follow(on, &other.tested, &by, err);
    weft_plugin_under_test_close_other(&other);
    return status;
}

/* Returns the weight-decay key: the one that at 0 has the same effect as a range decay of 0. none: the result of that
 * decay. NULL: no such key exists, so halving is not checked. */
static const weft_key *find_decay_key(const weft_plugin_under_test *tested, const bench *none, bench *room) {
    const weft_key *key = NULL;
    for (uint64_t i = 0; (key = weft_plugin_under_test_key_at(tested, i)) != NULL; i++) {
        weft_error refused = WEFT_ERROR_INIT;
        if (key->type != WEFT_KEY_F64 || !(*(const double *)weft_plugin_under_test_value(tested, key) > 0)) continue;
        if (decay_by(room, tested, key->name, 0, 1.0f, &refused) == WEFT_OK && parted(none, room, false) < 0)
            return key;
    }
    return NULL;
}

enum { FULL, HALF, NONE, OTHER, COURSES };

/* Checks that half the range's decay equals half the key. */
static weft_status decays_by_halves(const weft_plugin_under_test *tested, weft_error *err) {
    bench on[COURSES];
    const weft_key *key = NULL;
    int32_t at = -1;
    weft_status status = decay_by(&on[FULL], tested, NULL, 0, 1.0f, err);
    if (status == WEFT_OK) status = decay_by(&on[NONE], tested, NULL, 0, 0.0f, err);
    if (status != WEFT_OK || parted(&on[FULL], &on[NONE], false) < 0)
        return status; /* these keys have no weight decay */
    key = find_decay_key(tested, &on[NONE], &on[OTHER]);
    if (key == NULL) return WEFT_OK;
    status = decay_by(&on[HALF], tested, NULL, 0, 0.5f, err);
    if (status == WEFT_OK)
        status = decay_by(&on[OTHER], tested, key->name, *(const double *)weft_plugin_under_test_value(tested, key) / 2,
                          1.0f, err);
    if (status == WEFT_OK) at = parted(&on[HALF], &on[OTHER], false);
    if (at >= 0)
        status = WEFT_BROKEN(err,
                             "a weight changes from %.9g to %.9g in a range with decay = 0.5, and to %.9g with half of "
                             "%s and decay = 1: decay must multiply the weight decay",
                             (double)noise((uint32_t)at, 1), (double)on[HALF].weight[at], (double)on[OTHER].weight[at],
                             key->name);
    return status == WEFT_E_USER ? WEFT_OK : status; /* the key rejects the half */
}

static weft_status follows_decay(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range spared = whole_range(1.0f, 0.0f);
    bench on;
    weft_status status = WEFT_OK;
    if ((weft_plugin_under_test_table(tested, optimizer)->flags & WEFT_CAPABILITY_DECAY) == 0)
        return WEFT_MOOT(tested, err, "it does not offer the key decay, and need not");
    bench_fill(&on);
    for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on.gradient[i] = 0.0f;
    status = update_once(tested, &on, -1, &spared, err);
    if (status == WEFT_OK) status = stays_put(&on, "its gradient is zero and its range has decay = 0", err);
    return status == WEFT_OK ? decays_by_halves(tested, err) : status;
}

/* Follows the gradient of w^2 / 2, which is w. */
static weft_status reduces_the_loss(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    double before = 0, after = 0;
    instance self;
    bench on;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    bench_fill(&on);
    for (uint64_t step = 1; step <= 20 && status == WEFT_OK; step++) {
        memcpy(on.gradient, on.weight, sizeof on.gradient);
        status = step_once(&self, &on, step, step_size(&self), &range, err);
    }
    for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS && status == WEFT_OK; i++) {
        before += (double)noise(i, 1) * (double)noise(i, 1);
        after += (double)on.weight[i] * (double)on.weight[i];
    }
    if (status == WEFT_OK && !(after < before))
        status =
            WEFT_BROKEN(err,
                        "20 updates along the gradient of w^2 / 2 change w from %.6g to %.6g: the loss must decrease",
                        before / 2, after / 2);
    instance_close(&self);
    return status;
}

static weft_status stays_finite(weft_plugin_under_test *tested, weft_error *err) {
    static const float gradients[] = {0.0f, 1e-30f, 1e-3f, 1.0f, 1e4f, 1e10f};
    const weft_range range = whole_range(1.0f, 1.0f);
    bench on;
    weft_status status = WEFT_OK;
    bench_fill(&on);
    for (int32_t i = 0; i < ELEMENTS; i++) on.gradient[MARGIN + i] = gradients[i % 6];
    status = update_once(tested, &on, -1, &range, err);
    for (int32_t i = 0; i < ELEMENTS && status == WEFT_OK; i++)
        if (!isfinite(on.weight[MARGIN + i]))
            status = WEFT_BROKEN(err, "a gradient of %g changes a weight to %g", (double)gradients[i % 6],
                                 (double)on.weight[MARGIN + i]);
    return status;
}

/* ---- non-negative states ---- */

/* Returns the first negative or NaN element of a state declared non-negative; -1: no such element. */
static int32_t below_zero(const instance *self, const bench *on, int64_t *state) {
    for (int64_t s = 0; s < self->facts.n_states; s++) {
        if ((self->facts.states[s].flags & WEFT_STATE_NOT_NEGATIVE) == 0) continue;
        *state = s;
        for (int32_t i = MARGIN; i < MARGIN + ELEMENTS; i++)
            if (!(on->states[s][i] >= 0.0f)) return i;
    }
    return -1;
}

static bool has_unsigned_state(const instance *self) {
    for (int64_t s = 0; s < self->facts.n_states; s++)
        if ((self->facts.states[s].flags & WEFT_STATE_NOT_NEGATIVE) != 0) return true;
    return false;
}

/* Returns gradients of many magnitudes. A third of the elements has only positive ones, a third only negative ones, and
 * a third both, so that a mean of gradients becomes negative somewhere. */
static float signed_gradient(uint32_t i, uint32_t step) {
    static const float sizes[] = {1e-8f, 1e-3f, 1.0f, 100.0f};
    const float x = noise(i, 40 + step) * sizes[i / 3 % 4];
    return i % 3 == 0 ? fabsf(x) : i % 3 == 1 ? -fabsf(x) : x;
}

static weft_status update_by_signs(const instance *self, bench *on, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    weft_status status = WEFT_OK;
    bench_fill(on);
    for (uint32_t step = 1; step <= 20 && status == WEFT_OK; step++) {
        int64_t state = 0;
        int32_t at = -1;
        for (uint32_t i = MARGIN; i < MARGIN + ELEMENTS; i++) on->gradient[i] = signed_gradient(i, step);
        status = step_once(self, on, step, step_size(self), &range, err);
        if (status != WEFT_OK) return status;
        at = below_zero(self, on, &state);
        if (at >= 0)
            return WEFT_BROKEN(err,
                               "its state %s, which it declares as WEFT_STATE_NOT_NEGATIVE, is %.9g after update %u by "
                               "a gradient of %.9g: states = 8bit would store it without a sign, as zero",
                               self->facts.states[state].name, (double)on->states[state][at], step,
                               (double)on->gradient[at]);
    }
    return status;
}

static weft_status stays_above_zero(weft_plugin_under_test *tested, weft_error *err) {
    bench on;
    instance self;
    weft_status status = instance_open(&self, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && !has_unsigned_state(&self))
        status = WEFT_MOOT(tested, err, "it declares no state as WEFT_STATE_NOT_NEGATIVE, and need not");
    if (status == WEFT_OK) status = update_by_signs(&self, &on, err);
    instance_close(&self);
    return status;
}

/* Runs an update between create and destroy, because any slot may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    const weft_range range = whole_range(1.0f, 1.0f);
    bench on;
    bench_fill(&on);
    return update_once(tested, &on, -1, &range, err);
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

static weft_status updates_later(weft_plugin_under_test *tested, weft_error *err) {
    bench on[2];
    weft_status status = run_updates(tested, &on[0], ELEMENTS, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        status = run_updates(weft_newer_abi(tested), &on[1], ELEMENTS, WEFT_POISON_ONE, err);
        status =
            weft_newer_abi_check(status, memcmp(on[0].weight, on[1].weight, sizeof on->weight) == 0, "weights", err);
    }
    return status;
}

const weft_rule weft_rules_optimizer[] = {
    {"R29", "uses the step size of its key lr and the schedule", follows_its_key, false},
    {"R30", "declares the same states on each call", declares_alike, false},
    {"R31", "prepares each update from its number and step size only", prepares_alike, false},
    {"R32", "updates an element the same way for any bounds of the call", cuts_alike, false},
    {"R33", "writes only its elements, and no gradient", stays_inside, false},
    {"R34", "scales the update by lr_scale, and does nothing for step size 0", follows_the_step_size, false},
    {"R35", "decays by the range's decay, and not at all for decay 0", follows_decay, false},
    {"R36", "reduces a loss", reduces_the_loss, false},
    {"R37", "keeps finite weights finite", stays_finite, false},
    {"R38", "frees its memory", releases, false},
    {"R39", "updates the same with a host that has longer structs", updates_later, false},
    {"R114", "keeps a state non-negative that it declares as such", stays_above_zero, false},
    {"R117", "computes the same by its function and by the text of its body", follows_its_text, false},
    {NULL, NULL, NULL, false}};
