/* host/tools/check/other_key.c: see other_key.h. */
#include "tools/check/other_key.h"

#include "base/child.h"
#include "base/text.h"
#include "graph/record.h"
#include "plugin/crash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- answers ---- */

void weft_answer_begin(weft_answer *out) {
    out->fingerprint = 0xcbf29ce484222325u;
}

void weft_answer_add(weft_answer *to, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) to->fingerprint = (to->fingerprint ^ at[i]) * 0x100000001b3u;
}

void weft_answer_add_text(weft_answer *to, const char *text) {
    weft_answer_add(to, text == NULL ? "" : text, text == NULL ? 1 : strlen(text) + 1);
}

static bool backwards; /* in this process, which runs one trial */

weft_status weft_keyed_open(void *instance, const weft_plugin_under_test *tested, weft_error *err) {
    (void)err;
    ((weft_keyed *)instance)->tested = tested;
    ((weft_keyed *)instance)->backwards = backwards;
    return WEFT_OK;
}

uint32_t weft_keyed_at(const weft_keyed *self, uint32_t i, uint32_t n) {
    return self->backwards ? n - 1 - i : i;
}

void weft_keyed_add(weft_answer *to, uint32_t number, const weft_answer *one) {
    weft_answer numbered = *one;
    WEFT_ANSWER_ADD(&numbered, number);
    to->fingerprint += numbered.fingerprint;
}

void weft_keyed_close(void *instance) {
    ((weft_keyed *)instance)->tested = NULL;
}

/* ---- other values of a key ---- */

enum { VALUES = 4 };

static bool other_real(char *out, size_t size, double now, int32_t n) {
    const double values[VALUES] = {now / 2, now * 2, 0.5, 1};
    if (n >= VALUES || !isfinite(now)) return false;
    (void)snprintf(out, size, "%.17g", values[n]);
    return true;
}

static bool other_whole(char *out, size_t size, int64_t now, int32_t n) {
    if (n >= VALUES || now > INT64_MAX / 4 || now < INT64_MIN / 4) return false; /* reserved for named values */
    (void)snprintf(out, size, "%lld", (long long)(int64_t[VALUES]){now + 1, now * 2, now - 1, now / 2}[n]);
    return true;
}

/* Returns the n-th name of "one,two,three", skipping number `now`. */
static bool other_word(char *out, size_t size, const char *words, int64_t now, int32_t n) {
    for (int64_t skip = n + (n >= now); skip > 0 && *words != '\0'; skip--) {
        words += strcspn(words, ",");
        words += *words == ',';
    }
    words += strspn(words, " ");
    (void)snprintf(out, size, "%.*s", (int)strcspn(words, ", |"), words);
    return *words != '\0';
}

/* Returns the n-th test value of a key, as text; false: no more. Some may equal the current one. */
static bool other_value(char *out, size_t size, const weft_plugin_under_test *tested, const weft_key *key, int32_t n) {
    const void *value = weft_plugin_under_test_value(tested, key);
    if (key->type == WEFT_KEY_F64) return other_real(out, size, *(const double *)value, n);
    if (key->type == WEFT_KEY_I64) return other_whole(out, size, *(const int64_t *)value, n);
    if (key->type == WEFT_KEY_ENUM) return other_word(out, size, key->range, *(const int64_t *)value, n);
    if (key->type != WEFT_KEY_BOOL || n > 0) return false;
    (void)snprintf(out, size, "%s", *(const int64_t *)value != 0 ? "no" : "yes");
    return true;
}

/* ---- child process ---- */

/* When the instance with another value is created, relative to the first. */
typedef enum company { ALONE, BEHIND, BEFORE, COMPANIES } company;

typedef struct trial {
    const weft_plugin_under_test *tested, *other;
    const weft_answers *answers;
    company company;
    const char *rank; /* rank in the environment; NULL: unchanged */
    bool backwards;
} trial;

/* Environment variables that launchers and launched frameworks set to the rank. */
static const char *const rank_names[] = {"PMI_RANK",
                                         "PMIX_RANK",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_NODE_RANK",
                                         "MPI_LOCALRANKID",
                                         "MV2_COMM_WORLD_RANK",
                                         "MV2_COMM_WORLD_LOCAL_RANK",
                                         "PALS_RANKID",
                                         "FLUX_TASK_RANK",
                                         "SLURM_PROCID",
                                         "SLURM_LOCALID",
                                         "WEFT_RANK",
                                         "RANK",
                                         "LOCAL_RANK"};

static void become_rank(const char *rank) {
    for (size_t i = 0; rank != NULL && i < sizeof rank_names / sizeof *rank_names; i++)
        (void)setenv(rank_names[i], rank, 1);
}

/* Opens the second instance and calls it, because it may set shared state only when it is called. */
static weft_status add_company(const trial *asked, void *beside, weft_error *err) {
    weft_answer unused;
    weft_status status = asked->answers->open(beside, asked->tested, err);
    weft_answer_begin(&unused);
    return status == WEFT_OK ? asked->answers->ask(&unused, beside, err) : status;
}

static weft_status query_in_company(weft_answer *out, bool *refused, const trial *asked, void *beside, void *instance,
                                    weft_error *err) {
    weft_status status = asked->company == BEHIND ? add_company(asked, beside, err) : WEFT_OK;
    *refused = status != WEFT_OK;
    if (status == WEFT_OK) status = asked->answers->open(instance, asked->other, err);
    if (status == WEFT_OK && asked->company == BEFORE) {
        status = add_company(asked, beside, err);
        *refused = status != WEFT_OK;
    }
    weft_answer_begin(out);
    return status == WEFT_OK ? asked->answers->ask(out, instance, err) : status;
}

static void answer_there(int end, void *context) {
    const trial *asked = context;
    weft_answer out = {0};
    weft_error err = WEFT_ERROR_INIT;
    void *beside = weft_alloc(1, asked->answers->size), *instance = weft_alloc(1, asked->answers->size);
    weft_status status = WEFT_OK;
    bool refused = false; /* the unmodified keys are rejected, so no second instance is created */
    weft_crash_install(end);
    become_rank(asked->rank);
    backwards = asked->backwards;
    status = query_in_company(&out, &refused, asked, beside, instance, &err);
    asked->answers->close(instance);
    asked->answers->close(beside);
    free(instance);
    free(beside);
    (void)dprintf(end, "%c%016llx %s\n",
                  status == WEFT_OK ? 'y'
                  : refused         ? 'r'
                                    : 'n',
                  (unsigned long long)out.fingerprint, err.text);
}

/* ---- parent process ---- */

enum { ANSWER = 1 + 16 }; /* 'y' or 'n', and the fingerprint */

static weft_status run_trial(weft_child *child, const trial *asked, company where, weft_error *err) {
    trial there = *asked;
    there.company = where;
    return weft_child_run(child, answer_there, &there, 2048, asked->tested->options->seconds, err);
}

/* *changes: the answers differ from `now`, those with unmodified keys. */
static weft_status compare(bool *changes, const trial *asked, const weft_child *now, const char *key, const char *value,
                           weft_error *err) {
    static const char *const made[COMPANIES] = {"", "after", "before"};
    weft_child alone = {0}, beside = {0};
    weft_status status = run_trial(&alone, asked, ALONE, err);
    *changes = status != WEFT_OK || alone.n < ANSWER || now->n < ANSWER || strncmp(alone.text, now->text, ANSWER) != 0;
    for (int32_t c = BEHIND; c < COMPANIES && status == WEFT_OK; c++) {
        if (alone.n < ANSWER || alone.text[0] != 'y') break; /* other rules check the failure */
        status = run_trial(&beside, asked, (company)c, err);
        if (status == WEFT_OK && (beside.n == 0 || beside.text[0] != 'r') &&
            (beside.n < ANSWER || strncmp(alone.text, beside.text, ANSWER) != 0))
            status = WEFT_BROKEN(err,
                                 "with %s = %s the result differs if it is created %s an instance with another %s: a "
                                 "static variable contains state of one instance%.*s",
                                 key, value, made[c], key, beside.n < ANSWER || beside.text[0] != 'y' ? 300 : 0,
                                 beside.n > ANSWER ? beside.text + ANSWER : "");
        free(beside.text);
        beside = (weft_child){0};
    }
    free(alone.text);
    return status;
}

static weft_status print_apart(const char *rank, const weft_child *there, weft_error *err) {
    const int why = there->n < ANSWER || there->text[0] != 'y' ? 300 : 0;
    const char *said = there->n > ANSWER ? there->text + ANSWER : "";
    if (rank == NULL)
        return WEFT_BROKEN(err,
                           "two processes get different results for the same calls: the results depend on the process, "
                           "its id, an address, the time, or uninitialized memory%.*s",
                           why, said);
    return WEFT_BROKEN(
        err,
        "the result differs if PMI_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, RANK and similar variables are %s: ranks "
        "with different results would diverge, so a result may depend only on the arguments%.*s",
        rank, why, said);
}

/* Checks that answers do not depend on rank variables in the environment. A plugin must read its rank from the job. */
static weft_status compare_ranks(const weft_plugin_under_test *tested, const weft_answers *answers, weft_error *err) {
    static const char *const ranks[] = {NULL, "0", "1", "2", "3"};
    const trial asked = {.tested = tested, .other = tested, .answers = answers};
    weft_child here = {0}, there = {0};
    weft_status status = run_trial(&here, &asked, ALONE, err);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && status == WEFT_OK; i++) {
        trial other = asked;
        other.rank = ranks[i];
        if (here.n < ANSWER || here.text[0] != 'y') break; /* other rules check the failure */
        status = run_trial(&there, &other, ALONE, err);
        if (status == WEFT_OK && (there.n < ANSWER || strncmp(here.text, there.text, ANSWER) != 0))
            status = print_apart(other.rank, &there, err);
        free(there.text);
        there = (weft_child){0};
    }
    free(here.text);
    return status;
}

/* Checks that answers do not depend on the order of the calls. */
static weft_status compare_orders(const weft_plugin_under_test *tested, const weft_answers *answers,
                                  const weft_child *now, weft_error *err) {
    const trial asked = {.tested = tested, .other = tested, .answers = answers, .backwards = true};
    weft_child there = {0};
    weft_status status = WEFT_OK;
    if (answers->open != weft_keyed_open || now->n < ANSWER || now->text[0] != 'y') return WEFT_OK;
    status = run_trial(&there, &asked, ALONE, err);
    if (status == WEFT_OK && (there.n < ANSWER || strncmp(now->text, there.text, ANSWER) != 0))
        status = WEFT_BROKEN(err, "the results differ if the calls are made in another order: a static variable "
                                  "contains state of an earlier call");
    free(there.text);
    return status;
}

/* *tried: the keys accept the value. *changes: some answer differs with it. */
static weft_status try_value(bool *tried, bool *changes, const weft_plugin_under_test *tested,
                             const weft_answers *answers, const weft_child *now, const weft_key *key, const char *value,
                             weft_error *err) {
    weft_plugin_under_test_other other = {0};
    weft_error refused = WEFT_ERROR_INIT;
    weft_status status = weft_plugin_under_test_open_word(&other, tested, key->name, value, &refused);
    *tried = status == WEFT_OK && memcmp(weft_plugin_under_test_value(&other.tested, key),
                                         weft_plugin_under_test_value(tested, key), 8) != 0;
    status = WEFT_OK; /* a rejected value is skipped */
    if (*tried) {
        const trial asked = {.tested = tested, .other = &other.tested, .answers = answers};
        weft_plugin_under_test_asks("%s = %s", key->name, value);
        status = compare(changes, &asked, now, key->name, value, err);
    }
    weft_plugin_under_test_close_other(&other);
    return status;
}

/* Tries all values before the key counts as unused, because several values may have the same effect. */
static weft_status try_key(weft_plugin_under_test *tested, const weft_answers *answers, const weft_child *now,
                           const weft_key *key, weft_error *err) {
    char value[128];
    bool tried = false, changes = false, any = false;
    weft_status status = WEFT_OK;
    for (int32_t n = 0; !changes && status == WEFT_OK && other_value(value, sizeof value, tested, key, n); n++) {
        status = try_value(&tried, &changes, tested, answers, now, key, value, err);
        any = any || tried;
    }
    if (any && !changes)
        weft_words_append(tested->idle, sizeof tested->idle, "%s%s", tested->idle[0] == '\0' ? "" : ", ", key->name);
    return status;
}

weft_status weft_other_keys(weft_plugin_under_test *tested, const weft_answers *answers, weft_error *err) {
    const weft_key *key = NULL;
    const trial asked = {.tested = tested, .other = tested, .answers = answers};
    weft_child now = {0};
    weft_status status = compare_ranks(tested, answers, err);
    if (status == WEFT_OK) status = run_trial(&now, &asked, ALONE, err);
    if (status == WEFT_OK) status = compare_orders(tested, answers, &now, err);
    for (uint64_t i = 0; status == WEFT_OK && (key = weft_plugin_under_test_key_at(tested, i)) != NULL; i++)
        if ((key->flags & WEFT_REMOVED) == 0) status = try_key(tested, answers, &now, key, err);
    free(now.text);
    return status;
}

/* ---- recorded operators ---- */

enum { ROWS = 2, LENGTH = 8, CACHE = 16 };

static const int32_t modes[] = {WEFT_MODE_TRAIN, WEFT_MODE_EVALUATE, WEFT_MODE_GENERATE};

enum { MODES = sizeof modes / sizeof modes[0] };

weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->n = MODES * declared->n_segments;
    out->graphs = weft_alloc(out->n, sizeof(weft_graph *));
    for (int32_t i = 0; i < out->n && status == WEFT_OK; i++) {
        const int32_t mode = modes[i / declared->n_segments];
        const weft_graph_spec spec = {.mode = mode,
                                      .dtype = WEFT_F32,
                                      .rows = ROWS,
                                      .length = LENGTH,
                                      .cache_rows = mode == WEFT_MODE_GENERATE ? CACHE : 0,
                                      .carry_gradient = mode == WEFT_MODE_TRAIN};
        status = weft_graph_record(&out->graphs[i], declared, i % declared->n_segments, &spec, err);
        if (status == WEFT_E_UNSUPPORTED) status = WEFT_OK;
    }
    return status;
}

void weft_recorded_free(weft_recorded *recorded) {
    for (int32_t i = 0; i < recorded->n; i++) weft_graph_destroy(recorded->graphs[i]);
    free(recorded->graphs);
    memset(recorded, 0, sizeof *recorded);
}

static void add_weight(weft_answer *to, const weft_weight *weight) {
    static const weft_weight none = {.parameter = -1};
    const weft_weight *w = weight == NULL ? &none : weight;
    WEFT_ANSWER_ADD(to, w->parameter);
    WEFT_ANSWER_ADD(to, w->out);
    WEFT_ANSWER_ADD(to, w->first);
}

static void add_node(weft_answer *to, const weft_node *node) {
    const int32_t table = node->table == NULL ? -1 : node->table->index;
    WEFT_ANSWER_ADD(to, node->op); /* a host object at the same address in every forked process */
    weft_answer_add_text(to, node->label);
    weft_answer_add(to, node->inputs, (size_t)node->n_inputs * sizeof node->inputs[0]);
    WEFT_ANSWER_ADD(to, node->output.id);
    WEFT_ANSWER_ADD(to, node->width);
    WEFT_ANSWER_ADD(to, node->places);
    add_weight(to, node->weight);
    for (int i = 0; i < WEFT_NODE_CONSTANTS; i++) add_weight(to, node->constants[i]);
    WEFT_ANSWER_ADD(to, table);
    weft_answer_add_text(to, node->custom == NULL ? NULL : node->custom->name);
    /* all bits of the arguments that the graph copied from the plugin */
    WEFT_ANSWER_ADD(to, node->rope);
    WEFT_ANSWER_ADD(to, node->attention);
    WEFT_ANSWER_ADD(to, node->head);
    WEFT_ANSWER_ADD(to, node->eps);
    WEFT_ANSWER_ADD(to, node->factor);
    WEFT_ANSWER_ADD(to, node->form);
    WEFT_ANSWER_ADD(to, node->site);
}

void weft_recorded_add(weft_answer *to, const weft_recorded *recorded) {
    for (int32_t g = 0; g < recorded->n; g++) {
        const weft_graph *graph = recorded->graphs[g];
        const int32_t n = graph == NULL ? -1 : graph->n_nodes;
        WEFT_ANSWER_ADD(to, n);
        for (int32_t i = 0; i < n; i++) add_node(to, &graph->nodes[i]);
        if (graph != NULL) WEFT_ANSWER_ADD(to, graph->carry_out.id);
    }
}

bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b) {
    weft_answer one, two;
    weft_answer_begin(&one);
    weft_answer_begin(&two);
    weft_recorded_add(&one, a);
    weft_recorded_add(&two, b);
    return one.fingerprint == two.fingerprint;
}
