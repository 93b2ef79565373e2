/* host/tools/check/strategy_rules.c: what a strategy has to keep to. Its programs are proved by the checker that
 * every run goes through; here for jobs that no run has asked for. */
#include "tools/check/rule.h"

#include "tools/check/jobs.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "program/job.h"

#include <stdlib.h>

typedef struct asked {
    weft_drawn_job job;
    weft_program *programs[WEFT_DRAWN_WORLD];
    bool is_none; /* no job to ask this strategy for */
} asked;

static void asked_clear(asked *self) {
    for (int32_t rank = 0; rank < WEFT_DRAWN_WORLD; rank++) {
        weft_program_destroy(self->programs[rank]);
        self->programs[rank] = NULL;
    }
}

/* Whether owners read one unit that is not tied storage: a run's host splits such a unit and asks again. */
static bool is_split(const weft_job_spec *job) {
    for (int32_t u = 0; u < job->view.n_units; u++) {
        int32_t owner = -1;
        for (int32_t s = 0; s < job->view.n_segments; s++) {
            const int32_t other = job->view.segments[s].owner;
            if (other < 0 || !weft_job_spec_reads(job, s, u)) continue;
            if (owner >= 0 && owner != other && u != 0) return true;
            owner = other;
        }
    }
    return false;
}

/* A strategy refuses a job with either of these; a sentence says why. */
static bool is_refusal(weft_status status) {
    return status == WEFT_E_USER || status == WEFT_E_UNSUPPORTED;
}

/* Returns the programs of all ranks for a drawn job. is_refusal: the strategy does not take such a job. */
static weft_status ask(asked *out, const weft_plugin_under_test *tested, uint32_t number, int32_t mode, int32_t reduce,
                       uint8_t poison, weft_error *err) {
    const weft_strategy_plugin *table = weft_plugin_under_test_table(tested, strategy);
    const weft_host *host = weft_plugin_under_test_host(poison);
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    weft_job_draw(&out->job, number, mode);
    out->job.spec.view.reduce = reduce;
    weft_plugin_under_test_asks("job %u (%s)", number, out->job.says);
    status = weft_job_spec_check(&out->job.spec, err);
    out->is_none = status != WEFT_OK;
    if (status != WEFT_OK) return weft_error_set(err, WEFT_E_USER, "the job trains nothing");
    status = weft_job_replicas(&out->job.spec, host, table, tested->config, err);
    if (status == WEFT_OK) status = weft_job_place(&out->job.spec, host, table, tested->config, err);
    out->is_none = status == WEFT_OK && is_split(&out->job.spec);
    if (out->is_none) return weft_error_set(err, WEFT_E_USER, "its units would be split");
    for (int32_t rank = 0; rank < out->job.spec.view.world && status == WEFT_OK; rank++)
        status = weft_program_compile(&out->programs[rank], host, table, tested->config, &out->job.spec, rank, err);
    if (status != WEFT_OK && err->text[0] == '\0') return WEFT_BROKEN(err, "it fails without a sentence");
    return status;
}

typedef weft_status (*on_job)(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                              weft_error *err);

enum { ONE_JOB_IN = 20 }; /* has to be taken: a strategy may be for one rank alone */

/* A job that a strategy refuses, with a sentence, is passed over. */
static weft_status each_job(weft_plugin_under_test *tested, on_job holds, weft_error *err) {
    static const int32_t modes[] = {WEFT_MODE_TRAIN, WEFT_MODE_EVALUATE, WEFT_MODE_GENERATE};
    asked *a = calloc(1, sizeof *a);
    weft_tried tried = {0};
    weft_status status = WEFT_OK;
    if (a == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for jobs");
    for (uint32_t i = 0; i < 3 * WEFT_DRAWN_JOBS && status == WEFT_OK; i++) {
        status = holds(a, tested, i / 3, modes[i % 3], err);
        tried.tried += status == WEFT_OK;
        if (status != WEFT_OK && !is_refusal(status)) (void)weft_error_prefix(err, "job %u (%s): ", i / 3, a->job.says);
        if (is_refusal(status)) {
            if (!a->is_none) weft_tried_refused(&tried, weft_plugin_under_test_asked(), err);
            err->text[0] = '\0';
            status = WEFT_OK;
        }
        asked_clear(a);
    }
    free(a);
    return status == WEFT_OK ? weft_tried_judge(&tried, tested, "jobs in a mode", ONE_JOB_IN, err) : status;
}

/* ---- the rules ---- */

static weft_status is_proved(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                             int32_t reduce, weft_error *err) {
    weft_coverage coverage;
    weft_status status = ask(a, tested, number, mode, reduce, WEFT_POISON_ONE, err);
    if (status != WEFT_OK) return status;
    status = weft_programs_check(&coverage, (const weft_program *const *)a->programs, &a->job.spec, err);
    if (status == WEFT_OK && reduce != WEFT_REDUCE_FAST && !coverage.covered)
        return WEFT_BROKEN(err, "its sums are not those of `reduce`: %s", coverage.why);
    return status == WEFT_E_USER ? WEFT_BROKEN(err, "%s", err->text) : status;
}

static weft_status proved(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                          weft_error *err) {
    return is_proved(a, tested, number, mode, WEFT_REDUCE_ORDERED, err);
}

static weft_status proved_reduced(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    weft_status status = is_proved(a, tested, number, mode, WEFT_REDUCE_TREE, err);
    asked_clear(a);
    return status == WEFT_OK ? is_proved(a, tested, number, mode, WEFT_REDUCE_FAST, err) : status;
}

static bool same_programs(const asked *a, const asked *b) {
    for (int32_t rank = 0; rank < a->job.spec.view.world; rank++) {
        const weft_program *one = a->programs[rank], *two = b->programs[rank];
        if (one->n_instructions != two->n_instructions ||
            memcmp(one->instructions, two->instructions, (size_t)one->n_instructions * sizeof *one->instructions) != 0)
            return false;
    }
    return memcmp(a->job.placements, b->job.placements, sizeof a->job.placements) == 0;
}

static weft_status answered_alike(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    asked *again = calloc(1, sizeof *again);
    weft_status status = again == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a job")
                                       : ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = ask(again, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && !same_programs(a, again))
        status = WEFT_BROKEN(err, "it gives another program or placement when it is asked again");
    if (again != NULL) asked_clear(again);
    free(again);
    return status;
}

/* ---- beside one with other keys ---- */

enum { KEYED_EVERY = 9 }; /* every ninth job */

static weft_status ask_keyed(weft_answer *to, void *made, weft_error *err) {
    const weft_keyed *self = made;
    asked *a = calloc(1, sizeof *a);
    weft_status status = a != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for jobs");
    for (uint32_t i = 0; i < WEFT_DRAWN_JOBS / KEYED_EVERY && status == WEFT_OK; i++) {
        const uint32_t number = KEYED_EVERY * weft_keyed_at(self, i, WEFT_DRAWN_JOBS / KEYED_EVERY);
        weft_answer one;
        weft_answer_begin(&one);
        status = ask(a, self->tested, number, WEFT_MODE_TRAIN, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
        for (int32_t rank = 0; rank < a->job.spec.view.world && status == WEFT_OK; rank++)
            weft_answer_add(&one, a->programs[rank]->instructions,
                            (size_t)a->programs[rank]->n_instructions * sizeof *a->programs[rank]->instructions);
        if (status == WEFT_OK) WEFT_ANSWER_ADD(&one, a->job.placements);
        WEFT_ANSWER_ADD(&one, status);
        weft_keyed_add(to, number, &one);
        if (is_refusal(status)) { /* no job of this strategy */
            err->text[0] = '\0';
            status = WEFT_OK;
        }
        asked_clear(a);
    }
    free(a);
    return status;
}

static weft_status heeds_its_keys(weft_plugin_under_test *tested, weft_error *err) {
    const weft_answers answers = {sizeof(weft_keyed), weft_keyed_open, weft_keyed_close, ask_keyed};
    return weft_other_keys(tested, &answers, err);
}

/* ---- in a later host ---- */

static weft_status answered_later(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                  weft_error *err) {
    const weft_plugin_under_test *later = weft_newer_abi(tested);
    asked *again = calloc(1, sizeof *again);
    weft_status status = again == NULL || later == NULL
                             ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a job")
                             : ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && again != NULL && later != NULL) {
        status = ask(again, later, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
        status =
            weft_newer_abi_check(status, status == WEFT_OK && same_programs(a, again), "programs or placements", err);
    }
    if (again != NULL) asked_clear(again);
    free(again);
    return status;
}

static weft_status keeps_no_memory(asked *a, const weft_plugin_under_test *tested, uint32_t number, int32_t mode,
                                   weft_error *err) {
    const weft_status status = ask(a, tested, number, mode, WEFT_REDUCE_ORDERED, WEFT_POISON_ONE, err);
    if (status == WEFT_OK && weft_plugin_under_test_pieces() != 0)
        return WEFT_BROKEN(err, "it keeps %lld pieces of memory of host->alloc",
                           (long long)weft_plugin_under_test_pieces());
    return status;
}

static weft_status rule_proved(weft_plugin_under_test *tested, weft_error *err) {
    return each_job(tested, proved, err);
}

static weft_status rule_reduced(weft_plugin_under_test *tested, weft_error *err) {
    if ((weft_plugin_under_test_table(tested, strategy)->flags & WEFT_CAPABILITY_REDUCE) == 0)
        return WEFT_MOOT(tested, err, "it does not offer the key reduce, and need not");
    return each_job(tested, proved_reduced, err);
}

static weft_status rule_alike(weft_plugin_under_test *tested, weft_error *err) {
    const weft_status status = heeds_its_keys(tested, err);
    return status == WEFT_OK ? each_job(tested, answered_alike, err) : status;
}

static weft_status rule_later(weft_plugin_under_test *tested, weft_error *err) {
    return each_job(tested, answered_later, err);
}

static weft_status come_and_go(weft_plugin_under_test *tested, weft_error *err) {
    return each_job(tested, keeps_no_memory, err);
}

static weft_status rule_memory(weft_plugin_under_test *tested, weft_error *err) {
    return weft_plugin_under_test_gives_back(tested, come_and_go, err);
}

const weft_rule weft_rules_strategy[] = {
    {"R50", "strategy", "is proved for jobs of 1 to 16 ranks, in each mode", rule_proved, false},
    {"R51", "strategy", "is proved with reduce = tree and fast, if it offers them", rule_reduced, false},
    {"R52", "strategy", "gives the same programs whenever it is asked", rule_alike, false},
    {"R53", "strategy", "gives its memory back", rule_memory, false},
    {"R54", "strategy", "gives the same programs to a host whose structs are longer", rule_later, false},
    {NULL, NULL, NULL, NULL, false}};
