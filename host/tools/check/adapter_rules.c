/* host/tools/check/adapter_rules.c: rules for adapters, on the small model, partly with this program's commands. */
#include "tools/check/own_command.h"
#include "tools/check/rule.h"

#include "adapter/adapter.h"
#include "base/file.h"
#include "base/units.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "graph/record.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/random.h>

/* Declares the model that adapters are tested on: this project's llama plugin with default keys. */
static weft_status declare_model(weft_declared **out, const weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_plugin_under_test model;
    weft_status status = weft_plugin_under_test_open_own(&model, "model", "llama", err);
    *out = NULL;
    if (status == WEFT_OK) status = weft_path_join(path, tested->options->directory, "config.json", err);
    if (status == WEFT_OK)
        status = weft_declared_create(out, weft_services(), weft_plugin_under_test_table(&model, model), model.config,
                                      path, NULL, err);
    weft_plugin_under_test_close(&model);
    return status;
}

/* source NULL: creates a new adapter. */
static weft_status attach_from(weft_declared **out, const weft_plugin_under_test *tested, uint8_t poison,
                               const weft_adapter_source *source, weft_error *err) {
    weft_status status = declare_model(out, tested, err);
    if (status == WEFT_OK)
        status = weft_adapter_attach(*out, weft_plugin_under_test_host(poison),
                                     weft_plugin_under_test_table(tested, adapter), tested->config, source, err);
    return status;
}

static weft_status attach(weft_declared **out, const weft_plugin_under_test *tested, uint8_t poison, weft_error *err) {
    return attach_from(out, tested, poison, NULL, err);
}

/* ---- declaration ---- */

static bool same_parameter(const weft_parameter *a, const weft_parameter *b) {
    return strcmp(a->name, b->name) == 0 && a->rank == b->rank && a->dims[0] == b->dims[0] &&
           a->dims[1] == b->dims[1] && a->frozen == b->frozen && a->init_form == b->init_form &&
           a->init_std == b->init_std && a->module == b->module;
}

static weft_status compare(const weft_declared *a, const weft_declared *b, weft_error *err) {
    if (a->n_parameters != b->n_parameters)
        return WEFT_BROKEN(err, "a second instance adds %d parameters, and the first one %d", (int)b->n_parameters,
                           (int)a->n_parameters);
    for (int32_t i = 0; i < a->n_parameters; i++)
        if (!same_parameter(&a->parameters[i], &b->parameters[i]))
            return WEFT_BROKEN(err, "a second instance declares %s otherwise than the first one",
                               a->parameters[i].name);
    for (int32_t i = 0; i < a->n_sites; i++)
        if (a->sites[i].claimed != b->sites[i].claimed)
            return WEFT_BROKEN(err, "one of two instances claims %s", a->sites[i].view.path);
    return WEFT_OK;
}

static bool same_claims(const weft_declared *a, const weft_declared *b) {
    weft_error unused = WEFT_ERROR_INIT;
    return compare(a, b, &unused) == WEFT_OK;
}

/* ---- independence from instances with other keys ---- */

static weft_status open_attached(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    return attach(made, tested, WEFT_POISON_ONE, err);
}

static void close_attached(void *made) {
    weft_declared **attached = made;
    weft_declared_destroy(*attached);
    *attached = NULL;
}

static void add_parameter(weft_answer *to, const weft_parameter *p) {
    weft_answer_add_text(to, p->name);
    WEFT_ANSWER_ADD(to, p->rank);
    WEFT_ANSWER_ADD(to, p->dims);
    WEFT_ANSWER_ADD(to, p->init_std);
}

static weft_status query_attached(weft_answer *to, void *made, weft_error *err) {
    const weft_declared *attached = *(weft_declared **)made;
    weft_recorded recorded = {0};
    const weft_status status = weft_recorded_make(&recorded, attached, err);
    for (int32_t i = 0; i < attached->n_parameters; i++) add_parameter(to, &attached->parameters[i]);
    for (int32_t i = 0; i < attached->n_sites; i++) WEFT_ANSWER_ADD(to, attached->sites[i].claimed);
    if (status == WEFT_OK) weft_recorded_add(to, &recorded);
    weft_recorded_free(&recorded);
    return status;
}

static const weft_answers answers = {sizeof(weft_declared *), open_attached, close_attached, query_attached};

static weft_status declares_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_declared *one = NULL, *two = NULL;
    weft_status status = weft_other_keys(tested, &answers, err);
    if (status == WEFT_OK) status = attach(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = attach(&two, tested, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = compare(one, two, err);
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

/* Checks that instances do not count calls: the first records again after the second has recorded. */
static weft_status records_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_declared *one = NULL, *two = NULL;
    weft_recorded first = {0}, second = {0}, again = {0};
    weft_status status = attach(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = attach(&two, tested, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = weft_recorded_make(&first, one, err);
    if (status == WEFT_OK) status = weft_recorded_make(&second, two, err);
    if (status == WEFT_OK) status = weft_recorded_make(&again, one, err);
    if (status == WEFT_OK && !weft_recorded_same(&first, &second))
        status = WEFT_BROKEN(err, "a second instance records different operators or arguments");
    else if (status == WEFT_OK && !weft_recorded_same(&first, &again))
        status = WEFT_BROKEN(err, "records different operators or arguments on a second call");
    weft_recorded_free(&first);
    weft_recorded_free(&second);
    weft_recorded_free(&again);
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

/* ---- newer-ABI host ---- */

static weft_status record_later(const weft_declared *one, const weft_declared *two, weft_error *err) {
    weft_recorded ones = {0}, twos = {0};
    weft_status status = weft_recorded_make(&ones, one, err);
    if (status == WEFT_OK) {
        status = weft_recorded_make(&twos, two, err);
        status = weft_newer_abi_check(status, status == WEFT_OK && weft_recorded_same(&ones, &twos), "operators", err);
    }
    weft_recorded_free(&ones);
    weft_recorded_free(&twos);
    return status;
}

static bool same_names(const weft_adapter_list *a, const weft_adapter_list *b) {
    bool is_same = a->n == b->n;
    for (int32_t i = 0; i < a->n && is_same; i++)
        is_same = memcmp(&a->entries[i].tensor, &b->entries[i].tensor, sizeof a->entries[i].tensor) == 0;
    return is_same;
}

static weft_status name_later(const weft_declared *one, const weft_declared *two, weft_error *err) {
    weft_adapter_list ones = {0}, twos = {0};
    weft_status status = weft_adapter_list_make(&ones, one, 0, true, err);
    if (status == WEFT_OK) {
        status = weft_adapter_list_make(&twos, two, 0, true, err);
        status = weft_newer_abi_check(status, status == WEFT_OK && same_names(&ones, &twos), "names or shapes in files",
                                      err);
    }
    free(ones.entries);
    free(twos.entries);
    return status;
}

/* Input of `merge`: some rows of a site's weight, and drawn values for the parameters that the adapter added. */
typedef struct merging {
    const weft_declared *declared;
    float **values; /* [n_parameters], allocated on first use */
} merging;

static merging merging_of(const weft_declared *declared) {
    return (merging){declared, weft_alloc(declared->n_parameters, sizeof(float *))};
}

static void merging_free(merging *self) {
    for (int32_t i = 0; i < self->declared->n_parameters; i++) free(self->values[i]);
    free(self->values);
}

static void draw(float *out, int64_t n, uint64_t what) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(weft_random(83, WEFT_RANDOM_SAMPLE, what, (uint64_t)i).v[0] >> 8) * 0x1p-24f - 0.5f;
}

static const float *value_of(void *context, const weft_weight *weight) {
    const merging *self = context;
    const weft_parameter *p = &self->declared->parameters[weight->parameter];
    float **at = &self->values[weight->parameter];
    if (*at == NULL) {
        *at = weft_alloc(p->numel, sizeof **at);
        draw(*at, p->numel, (uint64_t)weight->parameter);
    }
    return *at;
}

enum { MERGED_ROWS = 4 };

static weft_status merge_rows(float *w, merging *self, uint32_t site, int64_t first, int64_t rows, weft_error *err) {
    const weft_declared *declared = self->declared;
    const weft_merge what = {.struct_size = (uint32_t)sizeof what,
                             .w = w,
                             .first = first,
                             .rows = rows,
                             .site = site,
                             .context = self,
                             .values = value_of};
    weft_status status;
    WEFT_PLUGIN_CALL(status, declared->adapters[0].plugin, merge, err, declared->adapters[0].adapter, &what);
    return status;
}

static weft_status merge_site(float *w, merging *self, uint32_t site, weft_error *err) {
    const weft_site *view = &self->declared->sites[site].view;
    const bool is_cut = view->out > MERGED_ROWS;
    const int64_t rows = is_cut ? MERGED_ROWS : view->out;
    draw(w, rows * view->in, site);
    return merge_rows(w, self, site, is_cut ? 1 : 0, rows, err);
}

static weft_status compare_merged(merging *one, merging *two, uint32_t site, weft_error *err) {
    const int64_t n = MERGED_ROWS * one->declared->sites[site].view.in;
    float *w = weft_alloc(n * 2, sizeof *w);
    weft_status status = merge_site(w, one, site, err);
    if (status == WEFT_OK) {
        status = merge_site(w + n, two, site, err);
        status = weft_newer_abi_check(status, memcmp(w, w + n, (size_t)n * sizeof *w) == 0, "merged weights", err);
    }
    free(w);
    return status;
}

static bool is_merged(const weft_declared_site *site) {
    return site->claimed && site->view.whole < 0 && site->view.weight != NULL && site->view.kind != WEFT_SITE_HEAD;
}

static weft_status merge_later(const weft_declared *one, const weft_declared *two, weft_error *err) {
    merging ones = merging_of(one), twos = merging_of(two);
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < one->n_sites && status == WEFT_OK && one->adapters[0].plugin->merge != NULL; i++)
        if (is_merged(&one->sites[i])) status = compare_merged(&ones, &twos, (uint32_t)i, err);
    merging_free(&ones);
    merging_free(&twos);
    return status;
}

/* Checks `config_json` and the adapter continued from it. R91 checks that the adapter accepts its own file. */
static weft_status continue_later(const weft_plugin_under_test *tested, const weft_plugin_under_test *later,
                                  const weft_declared *made, weft_error *err) {
    const weft_adapter_plugin *table = made->adapters[0].plugin;
    char plain[128];
    const char *text = table->config_json == NULL ? NULL : table->config_json(made->adapters[0].adapter);
    weft_adapter_source source = {(uint32_t)sizeof source, 0, "adapter_config.json", plain, 0};
    weft_declared *one = NULL, *two = NULL;
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    (void)snprintf(plain, sizeof plain, "{\"peft_type\": \"%s\"}", tested->options->id);
    if (text != NULL) source.config_text = text;
    source.config_bytes = strlen(source.config_text);
    if (attach_from(&one, tested, WEFT_POISON_ONE, &source, &said) == WEFT_OK) {
        status = attach_from(&two, later, WEFT_POISON_ONE, &source, err);
        status = weft_newer_abi_check(status, status == WEFT_OK && same_claims(one, two),
                                      "weights or claims from a file", err);
    }
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

static weft_status works_later(weft_plugin_under_test *tested, weft_error *err) {
    const weft_plugin_under_test *later = weft_newer_abi(tested);
    weft_declared *one = NULL, *two = NULL;
    weft_status status = attach(&one, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        status = attach(&two, later, WEFT_POISON_ONE, err);
        status = weft_newer_abi_check(status, status == WEFT_OK && same_claims(one, two), "weights or claims", err);
    }
    if (status == WEFT_OK) status = record_later(one, two, err);
    if (status == WEFT_OK) status = name_later(one, two, err);
    if (status == WEFT_OK) status = merge_later(one, two, err);
    if (status == WEFT_OK) status = continue_later(tested, later, one, err);
    weft_declared_destroy(one);
    weft_declared_destroy(two);
    return status;
}

static weft_status merge_sites(const weft_declared *made, weft_error *err) {
    merging self = merging_of(made);
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < made->n_sites && status == WEFT_OK && made->adapters[0].plugin->merge != NULL; i++) {
        float *w = NULL;
        if (!is_merged(&made->sites[i])) continue;
        w = weft_alloc(MERGED_ROWS * made->sites[i].view.in, sizeof *w);
        status = merge_site(w, &self, (uint32_t)i, err);
        free(w);
    }
    merging_free(&self);
    return status;
}

/* Runs all slots of the adapter: recording, names and merge. */
static weft_status work_once(const weft_declared *made, weft_error *err) {
    const weft_joined_adapter *joined = &made->adapters[0];
    const char *text = NULL;
    weft_recorded recorded = {0};
    weft_adapter_list list = {0};
    weft_status status = weft_recorded_make(&recorded, made, err);
    if (status == WEFT_OK) status = weft_adapter_list_make(&list, made, 0, true, err);
    if (status == WEFT_OK && WEFT_HAS(joined->plugin, config_json) && joined->plugin->config_json != NULL)
        WEFT_PLUGIN_QUERY(text, joined->plugin, config_json, joined->adapter);
    (void)text;
    if (status == WEFT_OK) status = merge_sites(made, err);
    free(list.entries);
    weft_recorded_free(&recorded);
    return status;
}

/* Runs all slots between create and destroy, because any slot may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    weft_declared *made = NULL;
    weft_status status = attach(&made, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) status = work_once(made, err);
    weft_declared_destroy(made);
    return status;
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

/* ---- files ---- */

/* Trains long enough for a visible difference from the base model. */
static weft_status learn(const weft_plugin_under_test *tested, const char *ini, weft_error *err) {
    const char *const words[] = {"train", ini, "run.out=learnt", "train.steps=4", "optimizer.lr=0.02", NULL};
    return weft_own_command(tested, words, true, err);
}

static weft_status reads_what_it_saved(weft_plugin_under_test *tested, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const still[] = {"train",         ini, "run.out=read", "adapter.from=learnt/model", "optimizer.lr=0",
                                 "train.steps=1", NULL};
    if (status == WEFT_OK) status = learn(tested, ini, err);
    if (status == WEFT_OK) status = weft_own_command(tested, still, true, err);
    if (status == WEFT_OK &&
        !weft_files_are_equal("learnt/model/adapter_model.safetensors", "read/model/adapter_model.safetensors"))
        status = WEFT_BROKEN(err, "an adapter that is read and saved again differs");
    return status;
}

/* Links the plugin file under the name that plugin lookup expects. */
static weft_status be_found(const weft_plugin_under_test *tested, weft_error *err) {
    char link[WEFT_PATH_BYTES];
    (void)snprintf(link, sizeof link, "found/weft-adapter-%s.so", tested->options->id);
    if (mkdir("found", 0700) != 0 || symlink(tested->options->file, link) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be created", link);
    if (getcwd(link, sizeof link - 8) == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "getcwd of the working directory fails: %s", strerror(errno));
    return setenv("WEFT_PLUGIN_PATH", strcat(link, "/found"), 1) == 0 ? WEFT_OK
                                                                      : weft_error_set(err, WEFT_E_MEMORY, "no memory");
}

/* One weight in three buffers: unmodified, merged in one call, and merged in strips of rows. */
typedef struct strips {
    float *base, *whole, *strip;
    int64_t out, in;
    const char *path;
} strips;

/* Merges some rows. The memory after the strip must not change. */
static weft_status merge_strip(strips *s, merging *self, uint32_t site, int64_t first, int64_t rows, weft_error *err) {
    const int64_t n = rows * s->in;
    weft_status status = WEFT_OK;
    memcpy(s->strip, s->base, (size_t)(s->out * s->in) * sizeof *s->strip);
    memcpy(s->strip, s->base + first * s->in, (size_t)n * sizeof *s->strip);
    status = merge_rows(s->strip, self, site, first, rows, err);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const double alone = (double)s->strip[i], among = (double)s->whole[first * s->in + i];
        if (!(fabs(alone - among) <= 1e-5 * fabs(among) + 1e-6))
            return WEFT_BROKEN(err,
                               "row %lld of %s is %.7g if rows %lld to %lld are merged, and %.7g if all rows are "
                               "merged: row i of what->w is row what->first + i of the weight",
                               (long long)(first + i / s->in), s->path, alone, (long long)first,
                               (long long)(first + rows - 1), among);
    }
    if (status == WEFT_OK && memcmp(s->strip + n, s->base + n, (size_t)(s->out * s->in - n) * sizeof *s->strip) != 0)
        return WEFT_BROKEN(err, "of %s it writes beyond the %lld rows to merge", s->path, (long long)rows);
    return status;
}

/* ---- threads ---- */

enum { ROWS_AT_ONCE = 2, MOST_ROWS = 256, LEAST_PASSES = 2 };

#define SECONDS 0.02 /* seconds per site, so that threads overlap also on few cores */

/* `strip` is shared, and each thread owns some of its rows. `whole` is the sequential result. */
typedef struct merger {
    const strips *s;
    merging *self;
    uint32_t site;
    int64_t number, rows; /* number of threads; merged rows of the site */
    double until;
    int64_t differs; /* first differing element; -1: equal */
    weft_status status;
    weft_error err;
} merger;

static weft_status merge_in_place(const strips *s, merging *self, uint32_t site, int64_t first, int64_t rows,
                                  weft_error *err) {
    float *w = s->strip + first * s->in;
    memcpy(w, s->base + first * s->in, (size_t)(rows * s->in) * sizeof *w);
    return merge_rows(w, self, site, first, rows, err);
}

static int64_t at_once(const merger *m, int64_t first) {
    return m->rows - first < ROWS_AT_ONCE ? m->rows - first : ROWS_AT_ONCE;
}

static void merge_own(merger *m) {
    const strips *s = m->s;
    for (int64_t first = m->number * ROWS_AT_ONCE; first < m->rows;
         first += (int64_t)WEFT_RULE_THREADS * ROWS_AT_ONCE) {
        const size_t bytes = (size_t)(at_once(m, first) * s->in) * sizeof(float);
        m->status = merge_in_place(s, m->self, m->site, first, at_once(m, first), &m->err);
        if (m->status == WEFT_OK && memcmp(s->strip + first * s->in, s->whole + first * s->in, bytes) != 0)
            m->differs = first;
        if (m->status != WEFT_OK || m->differs >= 0) return;
    }
}

static void merge_till_late(void *context) {
    merger *m = context;
    for (int32_t i = 0; m->status == WEFT_OK && m->differs < 0; i++) {
        if (i >= LEAST_PASSES && weft_clock_seconds() >= m->until) break;
        merge_own(m);
    }
}

static weft_status check_merger(const merger *m, weft_error *err) {
    if (m->status != WEFT_OK)
        return WEFT_BROKEN(err, "merging %s fails while %d threads merge rows of it: %s", m->s->path, WEFT_RULE_THREADS,
                           m->err.text);
    if (m->differs >= 0)
        return WEFT_BROKEN(err,
                           "rows %lld to %lld of %s change while %d threads merge rows of their own: merge writes to "
                           "shared memory, such as a static variable",
                           (long long)m->differs, (long long)(m->differs + at_once(m, m->differs) - 1), m->s->path,
                           WEFT_RULE_THREADS);
    return WEFT_OK;
}

static weft_status merge_at_once(const merger *what, weft_error *err) {
    merger mergers[WEFT_RULE_THREADS];
    weft_status status = WEFT_OK;
    for (int i = 0; i < WEFT_RULE_THREADS; i++) {
        mergers[i] = *what;
        mergers[i].number = i;
    }
    status = weft_rule_threads(merge_till_late, mergers, sizeof mergers[0], "merge", err);
    for (int i = 0; i < WEFT_RULE_THREADS && status == WEFT_OK; i++) status = check_merger(&mergers[i], err);
    return status;
}

static weft_status merges_at_once(strips *s, merging *self, uint32_t site, weft_error *err) {
    const int64_t rows = s->out < MOST_ROWS ? s->out : MOST_ROWS;
    merger what = {.s = s, .self = self, .site = site, .rows = rows, .differs = -1, .err = WEFT_ERROR_INIT};
    weft_status status = WEFT_OK;
    for (int64_t first = 0; first < rows && status == WEFT_OK; first += ROWS_AT_ONCE)
        status = merge_in_place(s, self, site, first, at_once(&what, first), err);
    memcpy(s->whole, s->strip, (size_t)(rows * s->in) * sizeof *s->whole);
    what.until = weft_clock_seconds() + SECONDS;
    return status == WEFT_OK ? merge_at_once(&what, err) : status;
}

/* ---- some rows of a site ---- */

/* Merges rows at the start, from the second row, in the middle and at the end. */
static weft_status merge_strips(strips *s, merging *self, uint32_t site, weft_error *err) {
    const int64_t firsts[] = {0, 1, s->out / 2, s->out - 2};
    weft_status status = WEFT_OK;
    draw(s->base, s->out * s->in, site);
    memcpy(s->whole, s->base, (size_t)(s->out * s->in) * sizeof *s->whole);
    status = merge_rows(s->whole, self, site, 0, s->out, err);
    for (int32_t i = 0; i < 4 && status == WEFT_OK; i++) {
        const int64_t first = firsts[i] < 0 ? 0 : firsts[i], left = s->out - first;
        status = merge_strip(s, self, site, first, left < 3 ? left : 3, err);
    }
    return status == WEFT_OK ? merges_at_once(s, self, site, err) : status;
}

static weft_status merges_site_in_strips(merging *self, uint32_t site, weft_error *err) {
    const weft_site *view = &self->declared->sites[site].view;
    const int64_t n = view->out * view->in;
    float *w = weft_alloc(3 * n, sizeof *w);
    strips s = {w, w + n, w + 2 * n, view->out, view->in, view->path};
    const weft_status status = merge_strips(&s, self, site, err);
    free(w);
    return status;
}

/* Checks merging in strips, as for large models. R92 merges each weight of the small model in one call. */
static weft_status merges_in_strips(weft_plugin_under_test *tested, weft_error *err) {
    weft_declared *declared = NULL;
    weft_status status = WEFT_OK;
    if (weft_plugin_under_test_table(tested, adapter)->merge == NULL)
        return WEFT_MOOT(tested, err, "it cannot be merged, and need not");
    status = attach(&declared, tested, WEFT_POISON_ONE, err);
    if (status == WEFT_OK) {
        merging self = merging_of(declared);
        for (int32_t i = 0; i < declared->n_sites && status == WEFT_OK; i++)
            if (is_merged(&declared->sites[i])) status = merges_site_in_strips(&self, (uint32_t)i, err);
        merging_free(&self);
    }
    weft_declared_destroy(declared);
    return status;
}

/* Checks that the losses agree within rounding: the merged model adds sums in another order. */
static weft_status merges_to_the_same(weft_plugin_under_test *tested, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    double adapted = 0, merged = 0;
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const merge[] = {"merge", "learnt/model", "learnt/model", "merged", NULL};
    const char *const both[] = {
        "eval", ini, "model.path=learnt/model", "model.start=weights", "adapter.from=learnt/model", "--json", NULL};
    const char *const one[] = {"eval", ini, "model.path=merged", "model.start=weights", "--json", NULL};
    if (weft_plugin_under_test_table(tested, adapter)->merge == NULL)
        return WEFT_MOOT(tested, err, "it cannot be merged, and need not");
    if (status == WEFT_OK) status = be_found(tested, err);
    if (status == WEFT_OK) status = learn(tested, ini, err);
    if (status == WEFT_OK) status = weft_own_command(tested, merge, false, err);
    if (status == WEFT_OK) status = weft_own_loss(&adapted, tested, both, true, err);
    if (status == WEFT_OK) status = weft_own_loss(&merged, tested, one, false, err);
    if (status == WEFT_OK && fabs(adapted - merged) > 1e-5 * fabs(adapted))
        status = WEFT_BROKEN(err, "the merged model has loss %.7g, and base and adapter %.7g", merged, adapted);
    return status;
}

/* Positions that an adapter adds to attention have no value that changes nothing. */
static weft_status claims_attention(bool *claims, const weft_plugin_under_test *tested, weft_error *err) {
    weft_declared *declared = NULL;
    const weft_status status = attach(&declared, tested, WEFT_POISON_ONE, err);
    *claims = false;
    for (int32_t i = 0; status == WEFT_OK && i < declared->n_sites; i++)
        *claims = *claims || (declared->sites[i].claimed && declared->sites[i].view.kind == WEFT_SITE_ATTENTION);
    weft_declared_destroy(declared);
    return status;
}

static weft_status starts_as_base(weft_plugin_under_test *tested, weft_error *err) {
    char ini[WEFT_PATH_BYTES];
    double adapted = 0, base = 0;
    bool claims = false;
    weft_status status = weft_own_ini(ini, tested, err);
    const char *const words[] = {"eval", ini, "--json", NULL};
    if (status == WEFT_OK) status = claims_attention(&claims, tested, err);
    if (status == WEFT_OK) status = weft_own_loss(&adapted, tested, words, true, err);
    if (status == WEFT_OK) status = weft_own_loss(&base, tested, words, false, err);
    if (status != WEFT_OK || fabs(adapted - base) <= 1e-6 * fabs(base)) return status;
    if (claims) return WEFT_MOOT(tested, err, "it adapts attention, so a new one may change the model");
    return WEFT_BROKEN(err,
                       "the loss with a new adapter is %.9g, and %.9g without it. Fix: initialize the addition to have "
                       "no effect, for example with a matrix of zeros",
                       adapted, base);
}

const weft_rule weft_rules_adapter[] = {
    {"R90", "declares and claims the same on each call", declares_alike, false},
    {"R91", "is read as it was saved", reads_what_it_saved, true},
    {"R92", "merges into the same function", merges_to_the_same, true},
    {"R93", "frees its memory", releases, false},
    {"R94", "declares, records, names and merges the same with a host that has longer structs", works_later, false},
    {"R95", "records the same operators on each call", records_alike, false},
    {"R96", "merges a row the same, in any group of rows and in several threads", merges_in_strips, false},
    {"R121", "does not change the model when it is new", starts_as_base, true},
    {NULL, NULL, NULL, false}};
