/* host/adapter/stack.c: see stack.h. */
#include "adapter/stack.h"

#include "adapter/origin.h"
#include "base/text.h"
#include "plugin/enter.h"

static bool is_of_peft(const weft_adapter_plugin *plugin) {
    return (plugin->flags & WEFT_ADAPTER_PEFT) != 0;
}

static int32_t find_home(const weft_stack *stack) {
    for (int32_t i = 0; i < stack->n; i++)
        if (is_of_peft(stack->plugins[i])) return i;
    for (int32_t i = 0; i < stack->n; i++)
        if (WEFT_HAS(stack->plugins[i], merge) && stack->plugins[i]->merge != NULL) return i;
    return 0;
}

weft_stack weft_stack_of(const weft_declared *declared) {
    weft_stack stack = {.n = declared->n_adapters};
    for (int32_t i = 0; i < stack.n; i++) stack.plugins[i] = declared->adapters[i].plugin;
    return stack;
}

int32_t weft_stack_home(const weft_declared *declared) {
    const weft_stack stack = weft_stack_of(declared);
    return find_home(&stack);
}

weft_held weft_stack_all(const weft_stack *stack) {
    weft_held held = {.n = stack->n, .home = find_home(stack)};
    for (int32_t i = 0; i < stack->n; i++) held.has[i] = true;
    return held;
}

weft_status weft_stack_source(char out[WEFT_PATH_BYTES], const weft_stack *stack, const weft_held *held,
                              int32_t adapter, const char *directory, weft_error *err) {
    const bool is_home = adapter == held->home;
    const int n = snprintf(out, WEFT_PATH_BYTES, "%s%s%s", directory, is_home ? "" : "/",
                           is_home ? "" : weft_plugin_id(stack->plugins[adapter]));
    if (n >= 0 && n < WEFT_PATH_BYTES) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s: the path is longer than %d bytes", directory, WEFT_PATH_BYTES - 1);
}

weft_status weft_stack_place(char out[WEFT_PATH_BYTES], const weft_declared *declared, int32_t adapter,
                             const char *directory, weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    const weft_held all = weft_stack_all(&stack);
    return weft_stack_source(out, &stack, &all, adapter, directory, err);
}

/* ---- adapters in a directory ---- */

weft_status weft_stack_refuse(const weft_stack *stack, const char *directory, weft_error *err) {
    weft_adapter_origin origin;
    char has[300] = "", wanted[300] = "";
    const weft_status status = weft_origin_load(&origin, directory, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < origin.n_all; i++)
        weft_words_append(has, sizeof has, "%s%s", i > 0 ? ", " : "", origin.all[i]);
    for (int32_t i = 0; i < stack->n; i++)
        weft_words_append(wanted, sizeof wanted, "%s%s", i > 0 ? ", " : "", weft_plugin_id(stack->plugins[i]));
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s contains %s, and [adapter] plugin is %s. Fix: set [adapter] plugin to the same names in the same order, or "
        "remove the key; further adapters are allowed after them if they are trained",
        directory, has[0] != '\0' ? has : "one adapter", wanted);
}

static int32_t find_id(const weft_stack *stack, const char *id, int32_t first) {
    for (int32_t i = first; i < stack->n; i++)
        if (strcmp(weft_plugin_id(stack->plugins[i]), id) == 0) return i;
    return -1;
}

/* Returns the adapter of a directory with one; -1: unknown. With a single adapter, its plugin checks the directory. A
 * directory in PEFT's format belongs to the only adapter that PEFT supports. */
static int32_t find_single(const weft_stack *stack, const weft_adapter_origin *origin) {
    int32_t found = -1, n = 0;
    if (stack->n == 1) return 0;
    if (origin->plugin[0] != '\0') return find_id(stack, origin->plugin, 0);
    for (int32_t i = 0; i < stack->n; i++) {
        if (!is_of_peft(stack->plugins[i])) continue;
        found = i;
        n++;
    }
    return n == 1 ? found : -1;
}

weft_status weft_stack_held(weft_held *out, const weft_stack *stack, const char *directory, weft_error *err) {
    weft_adapter_origin origin;
    weft_stack found = {.n = 0};
    int32_t at[WEFT_MOST_ADAPTERS], last = -1;
    const weft_status status = weft_origin_load(&origin, directory, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    for (int32_t i = 0; i < (origin.n_all > 0 ? origin.n_all : 1); i++) {
        last = origin.n_all > 0 ? find_id(stack, origin.all[i], last + 1) : find_single(stack, &origin);
        if (last < 0) return weft_stack_refuse(stack, directory, err);
        out->has[last] = true;
        at[found.n] = last;
        found.plugins[found.n++] = stack->plugins[last];
    }
    out->n = found.n;
    out->home = at[find_home(&found)];
    return WEFT_OK;
}
