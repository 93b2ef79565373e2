/* host/program/adapters.c: selects adapters by [adapter] plugin: a list of ids, or one file. See sections.h. */
#include "base/alloc.h"
#include "base/text.h"
#include "program/sections.h"

#include <stdlib.h>
#include <unistd.h>

static weft_status check_name(const weft_run *run, const char *name, weft_error *err) {
    const weft_adapter_names *all = &run->adapters;
    if (name[0] == '\0')
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "has nothing between two commas: write ids with one comma between two");
    if (strpbrk(name, " \t") != NULL)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "has '%s', which is no name of one adapter: put commas between them", name);
    if (strcmp(name, "none") == 0)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "lists none with other adapters: take it out, or the others");
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

weft_status weft_adapters_find(weft_run *run, weft_error *err) {
    weft_adapter_names *all = &run->adapters;
    const char *text = NULL;
    const char *fallback = run->adapter != NULL ? run->adapter : weft_part_fallback(WEFT_PART_ADAPTER);
    char *rest = NULL;
    weft_status status = weft_config_plugin(run->config, &text, "adapter", fallback, err);
    if (status != WEFT_OK || strcmp(text, "none") == 0) return status;
    rest = all->text = weft_strdup(text);
    if (strchr(text, '/') != NULL) { /* one file */
        if (strchr(text, ',') != NULL && access(text, F_OK) != 0)
            return weft_config_reject(run->config, "adapter", "plugin", err,
                                      "is no file, and a list of adapters has ids only: use the ids of weft plugins "
                                      "list, and name the directories of their files in [plugins] path");
        all->names[all->n++] = all->text;
        return WEFT_OK;
    }
    while (rest != NULL) {
        char *name = strsep(&rest, ",");
        name += strspn(name, " \t");
        for (size_t n = strlen(name); n > 0 && strchr(" \t", name[n - 1]) != NULL;) name[--n] = '\0';
        status = check_name(run, name, err);
        if (status != WEFT_OK) return status;
        all->names[all->n++] = name;
    }
    return WEFT_OK;
}

bool weft_adapters_unnamed(const weft_run *run) {
    static const char *const keys[] = {"plugin", "from", "use"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (weft_config_has_key(run->config, "adapter", keys[i])) return false;
    return run->adapters.n == 0;
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
