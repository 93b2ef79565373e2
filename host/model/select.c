/* host/model/select.c: selects the trained parameters from a list such as "head, last:2, *norm.weight". It only sets
 * flags; later stages derive groups, gradients and a shorter backward from them. */
#include "model/declare.h"

#include "base/alloc.h"
#include "base/text.h"

#include <fnmatch.h>
#include <stdlib.h>

enum { SHOWN = 4 }; /* names in an error message */

static bool has_matching_name(const weft_parameter *parameter, const char *pattern) {
    bool any = fnmatch(pattern, parameter->name, FNM_NOESCAPE) == 0;
    for (int32_t i = 0; i < parameter->n_aliases && !any; i++)
        any = fnmatch(pattern, parameter->aliases[i], FNM_NOESCAPE) == 0;
    return any;
}

/* Marks the parameters with a matching name. Returns true if any name matches. */
static bool mark_matching(const weft_declared *declared, const char *pattern, bool *wanted) {
    bool any = false;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (has_matching_name(&declared->parameters[p], pattern)) wanted[p] = any = true;
    return any;
}

/* Lists the first names, which show the naming style, and suggests "*q_proj*" for an item that is part of names. */
static weft_status refuse_no_match(const weft_declared *declared, const char *item, weft_error *err) {
    char names[512] = "", meant[300] = "", pattern[200];
    int32_t n = 0;
    (void)snprintf(pattern, sizeof pattern, "*%.197s*", item);
    for (int32_t p = 0; p < declared->n_parameters; p++) n += has_matching_name(&declared->parameters[p], pattern);
    if (n > 0) (void)snprintf(meant, sizeof meant, "; did you mean %s, which is %d of them?", pattern, (int)n);
    for (int32_t p = 0; p < declared->n_parameters && p < SHOWN; p++)
        weft_words_append(names, sizeof names, "%s%s", p == 0 ? "" : ", ", declared->parameters[p].name);
    return weft_error_set(err, WEFT_E_USER,
                          "'%s' is no parameter of this model. Allowed: all, adapter, head, vocabulary, first:N, "
                          "last:N and parameter names, in which * matches any text. Its %d parameters begin with %s%s",
                          item, declared->n_parameters, names, meant);
}

/* Marks the head. Returns false if the model has no head. */
static bool find_head(const weft_declared *declared, bool *wanted) {
    static const char *const suffixes[] = {"weight", "bias"};
    char name[512];
    bool any = false;
    for (int32_t i = 0; i < 2 && declared->info.head_path != NULL; i++) {
        int32_t p = -1;
        (void)snprintf(name, sizeof name, "%s.%s", declared->info.head_path, suffixes[i]);
        p = weft_declared_find(declared, name);
        if (p >= 0) wanted[p] = any = true;
    }
    return any;
}

/* Marks parameters with a row per token: embedding tables, and the head, tied or not. */
static bool mark_vocabulary(const weft_declared *declared, bool *wanted) {
    bool any = find_head(declared, wanted);
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        if (!parameter->added && parameter->role == WEFT_WEIGHT_EMBEDDING && !parameter->is_bias &&
            parameter->dims[0] == declared->info.vocab_size)
            wanted[p] = any = true;
    }
    return any;
}

/* item: "first:2" or "last:2". */
static weft_status mark_blocks(const weft_declared *declared, const char *item, bool *wanted, weft_error *err) {
    const bool first = item[0] == 'f';
    const char *digits = strchr(item, ':') + 1;
    const long long all = (long long)declared->info.n_layers;
    char *end = NULL;
    const long long n = strtoll(digits, &end, 10);
    char pattern[512];
    bool any = false;
    if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || n < 1 || n > all)
        return weft_error_set(err, WEFT_E_USER, "'%s': not valid. Allowed: a number of layers from 1 to %lld", item,
                              all);
    for (long long k = first ? 0 : all - n; k < (first ? n : all); k++) {
        (void)snprintf(pattern, sizeof pattern, "%s.%lld.*", declared->info.layer_path, k);
        any = mark_matching(declared, pattern, wanted) || any;
    }
    return any ? WEFT_OK : refuse_no_match(declared, item, err);
}

static weft_status mark_item(const weft_declared *declared, const char *item, bool *wanted, weft_error *err) {
    const char *problem = NULL;
    bool any = false;
    if (strncmp(item, "first:", 6) == 0 || strncmp(item, "last:", 5) == 0)
        return mark_blocks(declared, item, wanted, err);
    if (strcmp(item, "adapter") == 0) {
        for (int32_t p = 0; p < declared->n_parameters; p++)
            if (declared->parameters[p].added) wanted[p] = any = true;
        problem = "'adapter': the run has no adapter. Fix: set [adapter] plugin, or use all, head, first:N, last:N or "
                  "parameter names";
    } else if (strcmp(item, "head") == 0) {
        any = find_head(declared, wanted);
        problem = "'head': this model has no head. Fix: use parameter names instead";
    } else if (strcmp(item, "vocabulary") == 0) {
        any = mark_vocabulary(declared, wanted);
        problem = "'vocabulary': this model has neither an embedding of tokens nor a head. Fix: use parameter names "
                  "instead";
    } else {
        any = mark_matching(declared, strcmp(item, "all") == 0 ? "*" : item, wanted);
    }
    if (any) return WEFT_OK;
    return problem != NULL ? weft_error_set(err, WEFT_E_USER, "%s", problem) : refuse_no_match(declared, item, err);
}

weft_status weft_declared_select(weft_declared *declared, const char *trainable, weft_error *err) {
    weft_status status = WEFT_OK;
    bool *wanted = weft_alloc(declared->n_parameters, sizeof *wanted), any = false;
    char *list = weft_strdup(trainable), *rest = list;
    while (status == WEFT_OK && rest != NULL) {
        char *item = strsep(&rest, ",");
        item += strspn(item, " \t");
        item[strcspn(item, " \t")] = '\0';
        if (item[0] == '\0') continue;
        any = true;
        status = mark_item(declared, item, wanted, err);
    }
    if (status == WEFT_OK && !any)
        status = weft_error_set(err, WEFT_E_USER,
                                "the list of trained parameters is empty. Allowed: all, adapter, head, vocabulary, "
                                "first:N, last:N and parameter names, in which * matches any text");
    if (status == WEFT_OK) declared->packed_wanted = -1;
    for (int32_t p = declared->n_parameters - 1; p >= 0 && status == WEFT_OK; p--) {
        const bool is_packed = weft_parameter_is_packed(&declared->parameters[p]);
        declared->parameters[p].trainable = wanted[p] && !is_packed && !declared->parameters[p].frozen;
        if (wanted[p] && is_packed) declared->packed_wanted = p;
    }
    free(list);
    free(wanted);
    return status;
}
