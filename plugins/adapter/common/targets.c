/* plugins/adapter/common/targets.c: see targets.h. As in PEFT, a name matches a module by its complete path or by the
 * end of the path. */
#include "targets.h"

#include "../../common/distance.h"
#include "expression.h"

#include <stdlib.h>

/* Source of the names, which starts an error message: a key, or a file's key. */
typedef struct saying {
    char text[1100];
} saying;

static saying say(const char *source, const char *key, const char *theirs) {
    saying out;
    if (source == NULL) (void)snprintf(out.text, sizeof out.text, "%s", key);
    else (void)snprintf(out.text, sizeof out.text, "%.1000s: %s", source, theirs);
    return out;
}

static const char *key_of_wanted(const targets *self) {
    return self->wanted.source != NULL ? "target_modules" : self->wanted.regex[0] != 0 ? "regex" : "targets";
}

static saying say_wanted(const targets *self) {
    return say(self->wanted.source, key_of_wanted(self), key_of_wanted(self));
}

static saying say_left_out(const targets *self) {
    return say(self->left_out.source, "exclude", "exclude_modules");
}

/* ---- layers ---- */

static int is_listed(const char *list, int64_t layer) {
    while (*list != 0) {
        char *end = NULL;
        if (strtoll(list, &end, 10) == layer && end != list) return 1;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return 0;
}

int targets_has_layer(const char *layers, int64_t n_layers, int64_t layer) {
    if (strcmp(layers, "all") == 0) return 1;
    if (layer < 0) return 0;
    if (strncmp(layers, "first:", 6) == 0) return layer < strtoll(layers + 6, NULL, 10);
    if (strncmp(layers, "last:", 5) == 0) return layer >= n_layers - strtoll(layers + 5, NULL, 10);
    return is_listed(layers, layer);
}

static int is_number(const char *text, int64_t least, int64_t most) {
    char *end = NULL;
    const long long n = strtoll(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && (*end == 0 || *end == ',') && n >= least && n <= most;
}

static weft_status check_layers(const targets *self, int64_t n_layers, weft_error *err) {
    const char *layers = self->layers;
    const char *count = strncmp(layers, "first:", 6) == 0  ? layers + 6
                        : strncmp(layers, "last:", 5) == 0 ? layers + 5
                                                           : NULL;
    int good = layers[0] != 0;
    if (strcmp(layers, "all") == 0) return WEFT_OK;
    if (count != NULL) good = is_number(count, 1, n_layers) && strchr(count, ',') == NULL;
    else
        for (const char *at = layers; good && *at != 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
            good = is_number(at, 0, n_layers - 1);
    if (good) return WEFT_OK;
    if (self->wanted.source != NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: layers_to_transform = [%s]: this model has no such block. Allowed: null, or numbers "
                              "from 0 to %lld. Fix: use the base that the adapter was made for, or correct the key",
                              self->wanted.source, layers, (long long)n_layers - 1);
    return weft_error_set(err, WEFT_E_USER,
                          "layers is '%s'; it is all, first:N or last:N with N from 1 to %lld, or a list of numbers "
                          "from 0 to %lld, as 0, 2, 5",
                          layers, (long long)n_layers, (long long)n_layers - 1);
}

/* ---- one item ---- */

/* '*' matches any text, also an empty one. */
static int fits_pattern(const char *pattern, const char *text) {
    if (*pattern == 0) return *text == 0;
    if (*pattern != '*') return *pattern == *text && fits_pattern(pattern + 1, text + 1);
    do {
        if (fits_pattern(pattern + 1, text)) return 1;
    } while (*text++ != 0);
    return 0;
}

static int is_pattern(const char *item) {
    return strchr(item, '*') != NULL || strcmp(item, "all-linear") == 0;
}

/* Matches as PEFT does: the complete path, or a part of it after a dot. */
static int is_named(const char *name, const char *path) {
    const size_t n = strlen(name), m = strlen(path);
    return n <= m && strcmp(path + m - n, name) == 0 && (n == m || path[m - n - 1] == '.');
}

int targets_mean(const char *item, const weft_site *site) {
    if (strcmp(item, "all-linear") == 0) return site->kind == WEFT_SITE_LINEAR;
    return strchr(item, '*') != NULL ? fits_pattern(item, site->path) : is_named(item, site->path);
}

const char *targets_last_name(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static int is_known(const weft_adapter_job *job, uint32_t kinds, const uint8_t *chosen, uint32_t i) {
    const weft_site *site = weft_adapter_site(job, i);
    return chosen != NULL ? chosen[i] == 1 : (kinds >> site->kind & 1u) != 0 && site->whole < 0;
}

static int was_listed(const weft_adapter_job *job, uint32_t kinds, const uint8_t *chosen, uint32_t i) {
    const char *name = targets_last_name(weft_adapter_site(job, i)->path);
    for (uint32_t before = 0; before < i; before++)
        if (is_known(job, kinds, chosen, before) &&
            strcmp(targets_last_name(weft_adapter_site(job, before)->path), name) == 0)
            return 1;
    return 0;
}

void targets_know(targets_known *out, const weft_adapter_job *job, uint32_t kinds, const uint8_t *chosen,
                  const char *item) {
    size_t best = (size_t)-1, used = 0;
    *out = (targets_known){.nearest = ""};
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const char *name = targets_last_name(weft_adapter_site(job, i)->path);
        const size_t d = name_distance(item, name);
        if (!is_known(job, kinds, chosen, i) || was_listed(job, kinds, chosen, i)) continue;
        if (d < best) out->nearest = name;
        if (d < best) best = d;
        if (used < sizeof out->all)
            used += (size_t)snprintf(out->all + used, sizeof out->all - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

static weft_status refuse_nothing(const targets *self, saying who, const weft_adapter_job *job, const char *item,
                                  weft_error *err) {
    targets_known known;
    targets_know(&known, job, self->kinds, NULL, item);
    return weft_error_set(err, WEFT_E_USER,
                          "%s has '%s', which is no module of this model that can be adapted; the nearest is %s. There "
                          "are %s. Allowed: names, patterns in which * matches any text, and all-linear",
                          who.text, item, known.nearest, known.all);
}

static weft_status refuse_site(const targets *self, const weft_site *site, weft_error *err) {
    const int of_keys = self->wanted.source == NULL;
    const char *why = "which this adapter cannot adapt. Fix: remove it";
    if (site->kind == WEFT_SITE_HEAD && of_keys)
        why = "which computes the logits and cannot be adapted. Fix: remove it, or train it with [train] trainable = "
              "adapter, head";
    else if (site->kind == WEFT_SITE_HEAD)
        why =
            "which computes the logits, and this adapter cannot adapt a head. Fix: merge the adapter into its base "
            "with PEFT (merge_and_unload) and use the merged model, or train the complete head there (modules_to_save)";
    return weft_error_set(err, WEFT_E_USER, "%s has '%s', %s",
                          say(self->wanted.source, "targets", "target_modules").text, site->path, why);
}

/* A tied head has no weight of its own, but it has a name. */
static int has_name(const weft_site *site) {
    return site->whole < 0 && (site->weight != NULL || site->kind == WEFT_SITE_HEAD);
}

/* State of a site in `chosen` during the selection. */
enum { CHOSEN = 1, LEFT_OUT = 2, MISSED = 3 }; /* MISSED: excluded although it was matched */

static void take_site(uint8_t *chosen) {
    *chosen = *chosen >= LEFT_OUT ? MISSED : CHOSEN;
}

/* Marks the sites that match the item. passes_over: it may match no site. */
static weft_status choose_item(const targets *self, const weft_adapter_job *job, const char *item, bool passes_over,
                               uint8_t *chosen, weft_error *err) {
    int any = 0, other_layers = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const int served = (self->kinds >> site->kind & 1u) != 0;
        if (!has_name(site) || !targets_mean(item, site)) continue;
        if (!served && chosen[i] < LEFT_OUT && !is_pattern(item)) return refuse_site(self, site, err);
        any |= !served && chosen[i] >= LEFT_OUT;
        if (!served) continue;
        if (targets_has_layer(self->layers, job->n_layers, site->layer)) take_site(&chosen[i]), any = 1;
        else other_layers = 1;
    }
    if (any) return WEFT_OK;
    if (passes_over) return WEFT_OK;
    if (other_layers)
        return weft_error_set(err, WEFT_E_USER, "%s has '%s', which is in no layer that %s = %s selects",
                              say_wanted(self).text, item,
                              self->wanted.source == NULL ? "layers" : "layers_to_transform", self->layers);
    return refuse_nothing(self, say_wanted(self), job, item, err);
}

/* ---- regular expressions ---- */

static weft_status refuse_regex(const saying *who, const char *regex, const expression_fault *why, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER, "%s '%s' %s", who->text, regex, why->text);
}

/* Sets *found if the expression matches the site's path; exceeding the step limit is an error. */
static weft_status match_site(int *found, const expression *compiled, const char *regex, const saying *who,
                              const weft_site *site, weft_error *err) {
    *found = has_name(site) ? expression_fits(compiled, site->path) : 0;
    if (*found >= 0) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "%s '%s' needs too many steps to be compared with '%s'. Fix: write it without nested repetitions", who->text,
        regex, site->path);
}

/* Marks matching sites. A matching module that PEFT adapts and this adapter does not support is an error, not
 * skipped. */
static weft_status take_matched(const targets *self, const weft_adapter_job *job, uint32_t i, uint8_t *chosen, int *any,
                                weft_error *err) {
    const weft_site *site = weft_adapter_site(job, i);
    const int served = (self->kinds >> site->kind & 1u) != 0;
    if (self->wanted.source != NULL && site->kind == WEFT_SITE_HEAD && chosen[i] < LEFT_OUT)
        return refuse_site(self, site, err);
    if (!served || !targets_has_layer(self->layers, job->n_layers, site->layer)) return WEFT_OK;
    take_site(&chosen[i]);
    *any = 1;
    return WEFT_OK;
}

static weft_status choose_by_regex(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    const saying who = say_wanted(self);
    const char *regex = self->wanted.regex;
    expression_fault why;
    expression *compiled = expression_open(regex, EXPRESSION_WHOLE, self->wanted.source != NULL, &why);
    weft_status status = compiled == NULL ? refuse_regex(&who, regex, &why, err) : WEFT_OK;
    int any = 0;
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++) {
        int found = 0;
        status = match_site(&found, compiled, regex, &who, weft_adapter_site(job, i), err);
        if (found == 1) status = take_matched(self, job, i, chosen, &any, err);
    }
    expression_close(compiled);
    if (status != WEFT_OK || any) return status;
    return weft_error_set(err, WEFT_E_USER,
                          "%s '%s' matches the complete path of no module that can be adapted, such as %s", who.text,
                          regex, job->n_sites > 0 ? weft_adapter_site(job, 0)->path : "any");
}

/* ---- exclusions ---- */

/* An exclusion in a key must match a site. In a file, only a pattern must match. */
static weft_status leave_out_item(const targets *self, const weft_adapter_job *job, const char *item, uint8_t *chosen,
                                  weft_error *err) {
    const bool of_peft = self->left_out.source != NULL;
    int any = of_peft;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (!has_name(site) || !(of_peft ? is_named(item, site->path) : targets_mean(item, site))) continue;
        chosen[i] = LEFT_OUT;
        any = 1;
    }
    return any ? WEFT_OK : refuse_nothing(self, say_left_out(self), job, item, err);
}

static weft_status leave_out_by_regex(const targets *self, const weft_adapter_job *job, uint8_t *chosen,
                                      weft_error *err) {
    const saying who = say_left_out(self);
    const char *regex = self->left_out.regex;
    expression_fault why;
    expression *compiled = expression_open(regex, EXPRESSION_WHOLE, self->left_out.source != NULL, &why);
    weft_status status = compiled == NULL ? refuse_regex(&who, regex, &why, err) : WEFT_OK;
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++) {
        int found = 0;
        status = match_site(&found, compiled, regex, &who, weft_adapter_site(job, i), err);
        if (found == 1) chosen[i] = LEFT_OUT;
    }
    expression_close(compiled);
    return status;
}

/* ---- choose ---- */

/* Reads the next item of a list; false at the end. */
static bool next_item(const char **list, char item[512]) {
    const size_t n = strcspn(*list, ",");
    if (**list == 0) return false;
    (void)snprintf(item, 512, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

static weft_status leave_out(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    const char *at = self->left_out.names;
    char item[512];
    weft_status status = WEFT_OK;
    if (self->left_out.regex[0] != 0) return leave_out_by_regex(self, job, chosen, err);
    while (status == WEFT_OK && next_item(&at, item)) status = leave_out_item(self, job, item, chosen, err);
    return status;
}

static weft_status choose_items(const targets *self, const weft_adapter_job *job, bool passes_over, uint8_t *chosen,
                                weft_error *err) {
    const char *at = self->wanted.names;
    char item[512];
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_item(&at, item)) status = choose_item(self, job, item, passes_over, chosen, err);
    return status;
}

static const char *text_of(const module_names *names) {
    return names->regex[0] != 0 ? names->regex : names->names;
}

static weft_status refuse_all_left_out(const targets *self, weft_error *err) {
    return weft_error_set(
        err, WEFT_E_USER,
        "%s = %s excludes every module that %s = %s selects. Fix: exclude fewer modules, or select more",
        say_left_out(self).text, text_of(&self->left_out), key_of_wanted(self), text_of(&self->wanted));
}

/* PEFT's list may contain names for several models: one match is sufficient. */
static weft_status choose_all(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    const bool of_peft = self->wanted.source != NULL;
    weft_status status = WEFT_OK;
    if (self->wanted.regex[0] != 0) status = choose_by_regex(self, job, chosen, err);
    else status = choose_items(self, job, of_peft, chosen, err);
    if (status != WEFT_OK || memchr(chosen, CHOSEN, job->n_sites) != NULL) return status;
    if (memchr(chosen, MISSED, job->n_sites) != NULL) return refuse_all_left_out(self, err);
    if (of_peft) status = choose_items(self, job, false, chosen, err);
    if (status == WEFT_OK && self->wanted.names[0] == 0)
        status =
            weft_error_set(err, WEFT_E_USER, "targets is empty. Allowed: modules, as q_proj, v_proj, or all-linear");
    return status;
}

weft_status targets_choose(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    weft_status status = check_layers(self, job->n_layers, err);
    memset(chosen, 0, job->n_sites);
    if (status == WEFT_OK) status = leave_out(self, job, chosen, err);
    if (status == WEFT_OK) status = choose_all(self, job, chosen, err);
    for (uint32_t i = 0; i < job->n_sites; i++) chosen[i] = chosen[i] == CHOSEN;
    return status;
}
