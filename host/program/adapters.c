/* host/program/adapters.c: see adapters.h. */
#include "program/adapters.h"

#include "base/words.h"

#include <stdlib.h>
#include <unistd.h>

int32_t weft_adapter_of_part(int32_t part) {
    return part >= WEFT_PART_ADAPTER ? part - WEFT_PART_ADAPTER : -1;
}

static weft_status refuse_name(const weft_run *run, const char *name, weft_error *err) {
    const weft_adapter_names *all = &run->adapters;
    if (name[0] == '\0')
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "has nothing between two commas: write ids with one comma between two");
    if (strcmp(name, "none") == 0)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "asks for none beside others: take it out, or the others");
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->names[i], name) == 0)
            return weft_config_reject(run->config, "adapter", "plugin", err,
                                      "names %s twice: a model takes an adapter of one plugin once; take one of them "
                                      "out",
                                      name);
    if (all->n < WEFT_MOST_ADAPTERS) return WEFT_OK;
    return weft_config_reject(run->config, "adapter", "plugin", err, "names more than %d adapters, which is the most",
                              WEFT_MOST_ADAPTERS);
}

static weft_status take_names(weft_run *run, weft_error *err) {
    weft_adapter_names *all = &run->adapters;
    char *rest = all->text;
    while (rest != NULL) {
        char *name = strsep(&rest, ",");
        weft_status status = WEFT_OK;
        name += strspn(name, " \t");
        for (size_t n = strlen(name); n > 0 && strchr(" \t", name[n - 1]) != NULL;) name[--n] = '\0';
        if (strpbrk(name, " \t") != NULL)
            return weft_config_reject(run->config, "adapter", "plugin", err,
                                      "has '%s', which is no name of one adapter: put commas between them", name);
        status = refuse_name(run, name, err);
        if (status != WEFT_OK) return status;
        all->names[all->n++] = name;
    }
    return WEFT_OK;
}

/* A file's path, which has a slash, stands alone; with a comma it may be meant as one of a list. */
static weft_status take_file(weft_run *run, weft_error *err) {
    weft_adapter_names *all = &run->adapters;
    if (strchr(all->text, ',') != NULL && access(all->text, F_OK) != 0)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "is no file, and a list of adapters has ids alone: name each as weft plugins list "
                                  "does, and where its file lies in [plugins] path");
    all->names[all->n++] = all->text;
    return WEFT_OK;
}

weft_status weft_adapters_find(weft_run *run, weft_error *err) {
    const char *text = NULL;
    const char *fallback = run->adapter != NULL ? run->adapter : weft_part_fallback(WEFT_PART_ADAPTER);
    weft_status status = weft_config_plugin(run->config, &text, "adapter", fallback, err);
    if (status != WEFT_OK || strcmp(text, "none") == 0) return status;
    run->adapters.text = strdup(text);
    if (run->adapters.text == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the names of adapters");
    return strchr(text, '/') != NULL ? take_file(run, err) : take_names(run, err);
}

bool weft_adapters_unnamed(const weft_run *run) {
    static const char *const keys[] = {"plugin", "from", "use"};
    bool says = run->adapters.n > 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        says = says || weft_config_has_key(run->config, "adapter", keys[i]);
    return !says;
}

weft_status weft_adapters_refuse_idle(const weft_run *run, const char *section, const char *key, const char *line,
                                      weft_error *err) {
    return weft_config_reject(run->config, section, key, err,
                              "is a key of an adapter, and [adapter] names no plugin, so that it would do nothing: add "
                              "%s there, or plugin = none, with which keys wait in [adapter.ID]",
                              line);
}

void weft_adapters_forget(weft_run *run) {
    free(run->adapters.text);
    memset(&run->adapters, 0, sizeof run->adapters);
}

void weft_adapters_print(char *out, size_t size, const weft_run *run) {
    out[0] = '\0';
    for (int32_t i = 0; i < run->adapters.n; i++) {
        const char *id = weft_run_id(run, WEFT_PART_ADAPTER + i);
        if (id != NULL) weft_words_append(out, size, "%s%s", out[0] != '\0' ? ", " : "", id);
    }
}
