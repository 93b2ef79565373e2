/* host/adapter/stack.c: see stack.h. */
#include "adapter/stack.h"

#include "adapter/origin.h"
#include "base/words.h"
#include "plugin/enter.h"

static bool is_of_peft(const weft_adapter_plugin *plugin) {
    return (plugin->flags & WEFT_ADAPTER_PEFT) != 0;
}

static bool is_merged(const weft_adapter_plugin *plugin) {
    return WEFT_HAS(plugin, merge) && plugin->merge != NULL;
}

static int32_t find_first(const weft_stack *stack, bool (*is_meant)(const weft_adapter_plugin *plugin)) {
    for (int32_t i = 0; i < stack->n; i++)
        if (is_meant(stack->plugins[i])) return i;
    return -1;
}

static int32_t find_home(const weft_stack *stack) {
    int32_t home = find_first(stack, is_of_peft);
    if (home < 0) home = find_first(stack, is_merged);
    return home < 0 ? 0 : home;
}

static weft_stack stack_of(const weft_declared *declared) {
    weft_stack stack = {.n = declared->n_adapters};
    for (int32_t i = 0; i < stack.n; i++) stack.plugins[i] = declared->adapters[i].plugin;
    return stack;
}

int32_t weft_stack_home(const weft_declared *declared) {
    const weft_stack stack = stack_of(declared);
    return find_home(&stack);
}

weft_status weft_stack_source(char out[WEFT_PATH_BYTES], const weft_stack *stack, int32_t adapter,
                              const char *directory, weft_error *err) {
    const bool is_home = adapter == find_home(stack);
    const int n = snprintf(out, WEFT_PATH_BYTES, "%s%s%s", directory, is_home ? "" : "/",
                           is_home ? "" : weft_plugin_id(stack->plugins[adapter]));
    if (n >= 0 && n < WEFT_PATH_BYTES) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s: the path is longer than %d bytes", directory, WEFT_PATH_BYTES - 1);
}

weft_status weft_stack_place(char out[WEFT_PATH_BYTES], const weft_declared *declared, int32_t adapter,
                             const char *directory, weft_error *err) {
    const weft_stack stack = stack_of(declared);
    return weft_stack_source(out, &stack, adapter, directory, err);
}

static weft_status refuse(const weft_adapter_origin *origin, const weft_stack *stack, const char *directory,
                          weft_error *err) {
    char has[300] = "", wanted[300] = "";
    for (int32_t i = 0; i < origin->n_all; i++)
        weft_words_append(has, sizeof has, "%s%s", i > 0 ? ", " : "", origin->all[i]);
    for (int32_t i = 0; i < stack->n; i++)
        weft_words_append(wanted, sizeof wanted, "%s%s", i > 0 ? ", " : "", weft_plugin_id(stack->plugins[i]));
    return weft_error_set(err, WEFT_E_DATA,
                          "%s holds %s, and [adapter] plugin is %s: name what it holds, in that order, or take plugin "
                          "out",
                          directory, has[0] != '\0' ? has : "one adapter", wanted);
}

weft_status weft_stack_check(const weft_stack *stack, const char *directory, weft_error *err) {
    weft_adapter_origin origin;
    bool same = false;
    const weft_status status = weft_origin_load(&origin, directory, err);
    if (status != WEFT_OK) return status;
    if (origin.n_all == 0 && stack->n <= 1) return WEFT_OK; /* whose it is is for the plugin to judge */
    same = origin.n_all == stack->n;
    for (int32_t i = 0; same && i < stack->n; i++) same = strcmp(origin.all[i], weft_plugin_id(stack->plugins[i])) == 0;
    return same ? WEFT_OK : refuse(&origin, stack, directory, err);
}
