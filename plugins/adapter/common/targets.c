/* plugins/adapter/common/targets.c: see targets.h. A name means a module as PEFT takes it: the whole path, or its end.
 */
#include "targets.h"

#include "../../common/distance.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

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

static weft_status check_layers(const char *layers, int64_t n_layers, weft_error *err) {
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
    return weft_error_set(
        err, WEFT_E_USER,
        "layers is '%s'; it is all, first:N or last:N with N from 1 to %lld, or a list of numbers from 0 "
        "to %lld, as 0, 2, 5",
        layers, (long long)n_layers, (long long)n_layers - 1);
}

/* ---- one item ---- */

/* '*' stands for any text, also for none. */
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

static int is_meant(const char *item, const weft_site *site) {
    const size_t n = strlen(item), m = strlen(site->path);
    if (strcmp(item, "all-linear") == 0) return site->kind == WEFT_SITE_LINEAR;
    if (strchr(item, '*') != NULL) return fits_pattern(item, site->path);
    return n <= m && strcmp(site->path + m - n, item) == 0 && (n == m || site->path[m - n - 1] == '.');
}

static const char *last_name(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static int was_listed(const weft_adapter_job *job, uint32_t i) {
    const char *name = last_name(weft_adapter_site(job, i)->path);
    for (uint32_t before = 0; before < i; before++)
        if (strcmp(last_name(weft_adapter_site(job, before)->path), name) == 0) return 1;
    return 0;
}

static weft_status refuse_nothing(const targets *self, const weft_adapter_job *job, const char *item, weft_error *err) {
    const char *nearest = "";
    char all[512] = "";
    size_t best = (size_t)-1, used = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const char *name = last_name(site->path);
        const size_t d = name_distance(item, name);
        if ((self->kinds >> site->kind & 1u) == 0 || site->whole >= 0 || was_listed(job, i)) continue;
        if (d < best) nearest = name;
        if (d < best) best = d;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? ", " : "", name);
    }
    return weft_error_set(err, WEFT_E_USER,
                          "targets has '%s', which is no module of this model that can be adapted; the nearest is %s. "
                          "There are %s; allowed are names, patterns in which * stands for any text, and all-linear",
                          item, nearest, all);
}

static weft_status refuse_site(const weft_site *site, weft_error *err) {
    return weft_error_set(
        err, WEFT_E_USER,
        site->kind == WEFT_SITE_HEAD
            ? "targets has '%s', which makes the logits; no adapter stands there: take it out, or train "
              "it whole, as [train] trainable = adapter, head"
            : "targets has '%s', which is no place for this adapter: take it out",
        site->path);
}

/* Marks what the item means. */
static weft_status choose_item(const targets *self, const weft_adapter_job *job, const char *item, uint8_t *chosen,
                               weft_error *err) {
    int any = 0, other_layers = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const int served = (self->kinds >> site->kind & 1u) != 0;
        if (site->whole >= 0 || site->weight == NULL || !is_meant(item, site)) continue;
        if (!served && !is_pattern(item)) return refuse_site(site, err);
        if (!served) continue;
        if (targets_has_layer(self->layers, job->n_layers, site->layer)) chosen[i] = 1, any = 1;
        else other_layers = 1;
    }
    if (any) return WEFT_OK;
    if (other_layers)
        return weft_error_set(err, WEFT_E_USER,
                              "targets has '%s', which is in none of the layers that layers = %s leaves", item,
                              self->layers);
    return refuse_nothing(self, job, item, err);
}

/* ---- a regular expression ---- */

static weft_status refuse_regex(const char *regex, int code, weft_error *err) {
    PCRE2_UCHAR text[200] = {0};
    (void)pcre2_get_error_message(code, text, sizeof text);
    return weft_error_set(err, WEFT_E_USER, "regex '%s' is no regular expression: %s", regex, (const char *)text);
}

static weft_status choose_by_regex(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    int code = 0, any = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)self->regex, PCRE2_ZERO_TERMINATED,
                                         PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &code, &offset, NULL);
    pcre2_match_data *match = compiled == NULL ? NULL : pcre2_match_data_create_from_pattern(compiled, NULL);
    if (compiled == NULL) return refuse_regex(self->regex, code, err);
    for (uint32_t i = 0; match != NULL && i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->whole >= 0 || site->weight == NULL || (self->kinds >> site->kind & 1u) == 0) continue;
        if (!targets_has_layer(self->layers, job->n_layers, site->layer)) continue;
        if (pcre2_match(compiled, (PCRE2_SPTR)site->path, PCRE2_ZERO_TERMINATED, 0, 0, match, NULL) >= 0)
            chosen[i] = 1, any = 1;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(compiled);
    if (any) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "regex '%s' matches the whole path of no module that can be adapted, such as %s", self->regex,
                          job->n_sites > 0 ? weft_adapter_site(job, 0)->path : "any");
}

/* ---- the whole ---- */

weft_status targets_choose(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    weft_status status = check_layers(self->layers, job->n_layers, err);
    const char *at = self->names;
    memset(chosen, 0, job->n_sites);
    if (status == WEFT_OK && self->regex[0] != 0) return choose_by_regex(self, job, chosen, err);
    while (status == WEFT_OK && *at != 0) {
        const size_t n = strcspn(at, ",");
        char item[512];
        (void)snprintf(item, sizeof item, "%.*s", (int)n, at);
        status = choose_item(self, job, item, chosen, err);
        at += n + (at[n] == ',');
    }
    if (status == WEFT_OK && self->names[0] == 0)
        status =
            weft_error_set(err, WEFT_E_USER, "targets is empty: name modules, as q_proj, v_proj, or say all-linear");
    return status;
}
