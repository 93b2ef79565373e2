/* plugins/adapter/common/targets.c: see targets.h. A name means a module as PEFT takes it: the whole path, or its end.
 */
#include "targets.h"

#include "../../common/distance.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>

/* What says which modules, at the beginning of a sentence: a key, or a file's. */
typedef struct saying {
    char text[1100];
} saying;

static saying say(const targets *self, const char *key, const char *theirs) {
    saying out;
    if (self->source == NULL) (void)snprintf(out.text, sizeof out.text, "%s", key);
    else (void)snprintf(out.text, sizeof out.text, "%.1000s: %s", self->source, theirs);
    return out;
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
    return weft_error_set(err, WEFT_E_USER,
                          "%s is '%s'; it is all, first:N or last:N with N from 1 to %lld, or a list of numbers from 0 "
                          "to %lld, as 0, 2, 5",
                          say(self, "layers", "layers_to_transform").text, layers, (long long)n_layers,
                          (long long)n_layers - 1);
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
                          "%s has '%s', which is no module of this model that can be adapted; the nearest is %s. There "
                          "are %s; allowed are names, patterns in which * stands for any text, and all-linear",
                          say(self, "targets", "target_modules").text, item, nearest, all);
}

static weft_status refuse_site(const targets *self, const weft_site *site, weft_error *err) {
    const char *why = "which is no place for this adapter: take it out";
    if (site->kind == WEFT_SITE_HEAD && self->source == NULL)
        why = "which makes the logits; no adapter stands there: take it out, or train it whole, as [train] trainable = "
              "adapter, head";
    else if (site->kind == WEFT_SITE_HEAD)
        why = "which makes the logits, and this adapter changes no head here: have PEFT merge it into its base "
              "(merge_and_unload) and take the merged model, or train the head whole there (modules_to_save)";
    return weft_error_set(err, WEFT_E_USER, "%s has '%s', %s", say(self, "targets", "target_modules").text, site->path,
                          why);
}

/* A head that is tied has no weight of its own, and a name all the same. */
static int has_name(const weft_site *site) {
    return site->whole < 0 && (site->weight != NULL || site->kind == WEFT_SITE_HEAD);
}

/* Marks what the item means. passes_over: it may mean nothing. */
static weft_status choose_item(const targets *self, const weft_adapter_job *job, const char *item, bool passes_over,
                               uint8_t *chosen, weft_error *err) {
    int any = 0, other_layers = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const int served = (self->kinds >> site->kind & 1u) != 0;
        if (!has_name(site) || !is_meant(item, site)) continue;
        if (!served && !is_pattern(item)) return refuse_site(self, site, err);
        if (!served) continue;
        if (targets_has_layer(self->layers, job->n_layers, site->layer)) chosen[i] = 1, any = 1;
        else other_layers = 1;
    }
    if (any) return WEFT_OK;
    if (passes_over) return WEFT_OK;
    if (other_layers)
        return weft_error_set(err, WEFT_E_USER, "%s has '%s', which is in none of the layers that %s = %s leaves",
                              say(self, "targets", "target_modules").text, item,
                              self->source == NULL ? "layers" : "layers_to_transform", self->layers);
    return refuse_nothing(self, job, item, err);
}

/* ---- a regular expression ---- */

static weft_status refuse_regex(const targets *self, int code, weft_error *err) {
    PCRE2_UCHAR text[200] = {0};
    (void)pcre2_get_error_message(code, text, sizeof text);
    return weft_error_set(err, WEFT_E_USER, "%s '%s' is no regular expression: %s",
                          say(self, "regex", "target_modules").text, self->regex, (const char *)text);
}

static int matches(const pcre2_code *compiled, pcre2_match_data *match, const weft_site *site) {
    return pcre2_match(compiled, (PCRE2_SPTR)site->path, PCRE2_ZERO_TERMINATED, 0, 0, match, NULL) >= 0;
}

/* What PEFT has adapted and cannot be here is none of the sites that are passed over. */
static weft_status choose_matched(const targets *self, const weft_adapter_job *job, const pcre2_code *compiled,
                                  pcre2_match_data *match, uint8_t *chosen, weft_error *err) {
    int any = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        const int served = (self->kinds >> site->kind & 1u) != 0;
        if (!has_name(site) || !matches(compiled, match, site)) continue;
        if (self->source != NULL && site->kind == WEFT_SITE_HEAD) return refuse_site(self, site, err);
        if (!served || !targets_has_layer(self->layers, job->n_layers, site->layer)) continue;
        chosen[i] = 1;
        any = 1;
    }
    if (any) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "%s '%s' matches the whole path of no module that can be adapted, such as %s",
                          say(self, "regex", "target_modules").text, self->regex,
                          job->n_sites > 0 ? weft_adapter_site(job, 0)->path : "any");
}

static weft_status choose_by_regex(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)self->regex, PCRE2_ZERO_TERMINATED,
                                         PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &code, &offset, NULL);
    pcre2_match_data *match = compiled == NULL ? NULL : pcre2_match_data_create_from_pattern(compiled, NULL);
    weft_status status = WEFT_OK;
    if (compiled == NULL) return refuse_regex(self, code, err);
    if (match == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    else status = choose_matched(self, job, compiled, match, chosen, err);
    pcre2_match_data_free(match);
    pcre2_code_free(compiled);
    return status;
}

/* ---- the whole ---- */

static weft_status choose_items(const targets *self, const weft_adapter_job *job, bool passes_over, uint8_t *chosen,
                                weft_error *err) {
    const char *at = self->names;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && *at != 0) {
        const size_t n = strcspn(at, ",");
        char item[512];
        (void)snprintf(item, sizeof item, "%.*s", (int)n, at);
        status = choose_item(self, job, item, passes_over, chosen, err);
        at += n + (at[n] == ',');
    }
    return status;
}

/* A list of PEFT's may have names for several models: one that is met is enough. */
weft_status targets_choose(const targets *self, const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    weft_status status = check_layers(self, job->n_layers, err);
    memset(chosen, 0, job->n_sites);
    if (status == WEFT_OK && self->regex[0] != 0) return choose_by_regex(self, job, chosen, err);
    if (status == WEFT_OK) status = choose_items(self, job, self->source != NULL, chosen, err);
    if (status == WEFT_OK && self->source != NULL && memchr(chosen, 1, job->n_sites) == NULL)
        status = choose_items(self, job, false, chosen, err);
    if (status == WEFT_OK && self->names[0] == 0)
        status =
            weft_error_set(err, WEFT_E_USER, "targets is empty: name modules, as q_proj, v_proj, or say all-linear");
    return status;
}
