/* host/tools/check/newer_abi.c: see newer_abi.h. */
#include "tools/check/newer_abi.h"

#include "base/alloc.h"
#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <pthread.h>
#include <stdlib.h>
#include <weft/adapter.h>
#include <weft/comm.h>
#include <weft/data.h>
#include <weft/optimizer.h>
#include <weft/policy.h>
#include <weft/strategy.h>
#include <weft/tokenizer.h>

static char mistake[512]; /* first one */
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

void *weft_newer_abi_copy(const void *from, size_t n, size_t size, uint8_t filler) {
    const uint32_t says = (uint32_t)(size + WEFT_NEWER_ABI_BYTES);
    char *made = weft_alloc(n, says);
    for (size_t i = 0; i < n; i++) {
        char *to = made + i * says;
        memset(to, filler, says);
        memcpy(to, (const char *)from + i * size, size);
        memcpy(to, &says, sizeof says);
    }
    return made;
}

void *weft_newer_abi_structs(const void *from, size_t n, size_t size) {
    return weft_newer_abi_copy(from, n, size, WEFT_NEWER_ABI_PATTERN);
}

static void keep_mistake(const char *what, const char *type) {
    (void)pthread_mutex_lock(&telling);
    if (mistake[0] == '\0')
        (void)snprintf(mistake, sizeof mistake,
                       "in a newer host, with longer structs, it writes %s of the %s that it fills. Fix: fill it field "
                       "by field, or by weft_struct_give",
                       what, type);
    (void)pthread_mutex_unlock(&telling);
}

void weft_newer_abi_read(void *to, size_t n, size_t size, void *made, const char *type) {
    for (size_t i = 0; i < n; i++) {
        const char *from = (const char *)made + i * (size + WEFT_NEWER_ABI_BYTES);
        char *known = (char *)to + i * size;
        uint32_t own, says;
        memcpy(&says, from, sizeof says);
        memcpy(&own, known, sizeof own);
        if (says != size + WEFT_NEWER_ABI_BYTES) keep_mistake("struct_size", type);
        for (size_t b = size; b < size + WEFT_NEWER_ABI_BYTES; b++)
            if ((unsigned char)from[b] != WEFT_NEWER_ABI_PATTERN) keep_mistake("bytes beyond the end of SDK 1.0", type);
        memcpy(known, from, size);
        memcpy(known, &own, sizeof own);
    }
    free(made);
}

/* Returns a longer copy of one of the two hosts of plugin_under_test.h, valid until the process exits. [main] */
static const weft_host *weft_newer_abi_host(const weft_host *host) {
    static struct {
        weft_host *made;
        const weft_host *of;
    } hosts[2];
    int i = 0;
    while (i < 1 && hosts[i].of != NULL && hosts[i].of != host) i++;
    if (hosts[i].made == NULL) hosts[i].made = weft_newer_abi_structs(host, 1, sizeof *host);
    hosts[i].of = host;
    return hosts[i].made;
}

/* LATER: returns a longer copy of *from. ANSWER: copies the answer back into *to. */
#define LATER(from)            weft_newer_abi_structs((from), 1, sizeof *(from))
#define ANSWER(to, made, type) weft_newer_abi_read((to), 1, sizeof *(to), (made), (type))

/* The plugin's table, as each of its possible types. */
static union {
    const void *table;
    const weft_policy_plugin *policy;
    const weft_strategy_plugin *strategy;
    const weft_optimizer_plugin *optimizer;
    const weft_tokenizer_plugin *tokenizer;
    const weft_data_plugin *data;
    const weft_model_plugin *model;
    const weft_adapter_plugin *adapter;
    const weft_comm_plugin *comm;
} real;

/* ---- slots of the same shape in several kinds ---- */

/* CREATE: create with a job or a source. host: the host that it receives. */
#define CREATE(kind, type, host_given)                                                                                 \
    static weft_status kind##_create(weft_##kind **out, const weft_host *host, const void *config, const type *asked,  \
                                     weft_error *err) {                                                                \
        type *later = asked == NULL ? NULL : LATER(asked);                                                             \
        weft_status status;                                                                                            \
        WEFT_PLUGIN_CALL(status, real.kind, create, err, out, host_given, config, later);                              \
        free(later);                                                                                                   \
        return status;                                                                                                 \
    }
CREATE(model, weft_model_source, weft_newer_abi_host(host))
CREATE(adapter, weft_adapter_source, weft_newer_abi_host(host))
CREATE(comm, weft_comm_job, host) /* a run's host is identified by its address, so it is passed unchanged */

/* INFO: fills a struct of facts. */
#define INFO(kind)                                                                                                     \
    static void kind##_info(const weft_##kind *made, weft_##kind##_info *out) {                                        \
        weft_##kind##_info *later = LATER(out);                                                                        \
        WEFT_PLUGIN_NOTIFY(real.kind, info, made, later);                                                              \
        ANSWER(out, later, "weft_" #kind "_info");                                                                     \
    }
INFO(tokenizer)
INFO(data)
INFO(model)
INFO(comm)

/* REQUEST: reads one struct. made: type of the instance. */
#define REQUEST(kind, slot, made_type, type)                                                                           \
    static weft_status kind##_##slot(made_type *made, const type *asked, weft_error *err) {                            \
        type *later = LATER(asked);                                                                                    \
        weft_status status;                                                                                            \
        WEFT_PLUGIN_CALL(status, real.kind, slot, err, made, later);                                                   \
        free(later);                                                                                                   \
        return status;                                                                                                 \
    }
REQUEST(model, declare, weft_model, weft_builder)
REQUEST(adapter, merge, const weft_adapter, weft_merge)

/* ---- policy ---- */

static weft_status policy_units(const weft_host *host, const void *config, const weft_policy_job *job,
                                const weft_wrap *wrap, weft_error *err) {
    weft_policy_job *later = LATER(job);
    weft_wrap *wide = LATER(wrap);
    void *modules = weft_newer_abi_structs(job->modules, job->n_modules, sizeof *job->modules);
    void *parameters = weft_newer_abi_structs(job->parameters, job->n_parameters, sizeof *job->parameters);
    weft_status status;
    later->modules = modules;
    later->parameters = parameters;
    later->module_stride += WEFT_NEWER_ABI_BYTES;
    later->parameter_stride += WEFT_NEWER_ABI_BYTES;
    WEFT_PLUGIN_CALL(status, real.policy, units, err, weft_newer_abi_host(host), config, later, wide);
    free(parameters);
    free(modules);
    free(wide);
    free(later);
    return status;
}

/* ---- strategy ---- */

static weft_strategy_job *longer_job(const weft_strategy_job *job) {
    weft_strategy_job *later = LATER(job);
    const size_t n_units = (size_t)job->n_units, n_segments = (size_t)job->n_segments;
    later->units = weft_newer_abi_structs(job->units, n_units, sizeof *job->units);
    later->segments = weft_newer_abi_structs(job->segments, n_segments, sizeof *job->segments);
    if (job->placements != NULL)
        later->placements = weft_newer_abi_structs(job->placements, n_units, sizeof *job->placements);
    later->unit_stride += WEFT_NEWER_ABI_BYTES;
    later->segment_stride += WEFT_NEWER_ABI_BYTES;
    later->placement_stride += WEFT_NEWER_ABI_BYTES;
    return later;
}

static void free_job(weft_strategy_job *later) {
    free((void *)(uintptr_t)later->units);
    free((void *)(uintptr_t)later->segments);
    free((void *)(uintptr_t)later->placements);
    free(later);
}

static weft_status strategy_replicas(const weft_host *host, const void *config, const weft_strategy_job *job,
                                     int32_t *out, weft_error *err) {
    weft_strategy_job *later = longer_job(job);
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.strategy, replicas, err, weft_newer_abi_host(host), config, later, out);
    free_job(later);
    return status;
}

static weft_status strategy_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                  weft_placement *units, int32_t *owners, weft_error *err) {
    weft_strategy_job *later = longer_job(job);
    void *placed = weft_newer_abi_structs(units, (size_t)job->n_units, sizeof *units);
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.strategy, place, err, weft_newer_abi_host(host), config, later, placed, owners);
    weft_newer_abi_read(units, (size_t)job->n_units, sizeof *units, placed, "weft_placement");
    free_job(later);
    return status;
}

static weft_status strategy_compile(const weft_host *host, const void *config, const weft_strategy_job *job,
                                    int32_t rank, const weft_emitter *emitter, weft_error *err) {
    weft_strategy_job *later = longer_job(job);
    weft_emitter *wide = LATER(emitter);
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.strategy, compile, err, weft_newer_abi_host(host), config, later, rank, wide);
    free(wide);
    free_job(later);
    return status;
}

/* ---- optimizer ---- */

/* Kernel of the last optimizer that was queried; all instances of a plugin share it. */
static const weft_elementwise *kernel;

static weft_status optimizer_create(weft_optimizer **out, const weft_host *host, const void *config, weft_error *err) {
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.optimizer, create, err, out, weft_newer_abi_host(host), config);
    return status;
}

static weft_status optimizer_prepare(weft_optimizer *made, void *hp, const weft_step_info *step, weft_error *err) {
    weft_step_info *later = LATER(step);
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.optimizer, prepare, err, made, hp, later);
    free(later);
    return status;
}

static void run_kernel(const weft_elementwise_call *call) {
    weft_elementwise_call *later = LATER(call);
    weft_range *range = LATER(call->range);
    later->range = range;
    kernel->cpu(later);
    free(range);
    free(later);
}

static const weft_elementwise *optimizer_update(const weft_optimizer *made) {
    static weft_elementwise table;
    kernel = real.optimizer->update(made);
    if (kernel == NULL) return NULL;
    (void)weft_struct_take(&table, sizeof table, kernel);
    if (table.cpu != NULL) table.cpu = run_kernel;
    return &table;
}

/* ---- tokenizer ---- */

static weft_status tokenizer_create(weft_tokenizer **out, const weft_host *host, const void *config,
                                    const char *directory, weft_error *err) {
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.tokenizer, create, err, out, weft_newer_abi_host(host), config, directory);
    return status;
}

/* ---- data ---- */

/* Passes longer copies that are never freed, because the data keep the job. */
static weft_status data_create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                               weft_error *err) {
    static weft_data_job *later;
    weft_status status;
    if (later == NULL) {
        later = LATER(job);
        later->tokenizer = LATER(job->tokenizer);
    }
    WEFT_PLUGIN_CALL(status, real.data, create, err, out, weft_newer_abi_host(host), config, later);
    return status;
}

static void data_split_info(const weft_data *made, int32_t split, weft_split_info *out) {
    weft_split_info *later = LATER(out);
    WEFT_PLUGIN_NOTIFY(real.data, split_info, made, split, later);
    ANSWER(out, later, "weft_split_info");
}

#define FETCH(slot)                                                                                                    \
    static weft_status data_##slot(const weft_data *made, weft_micro_batch *out,                                       \
                                   const weft_micro_batch_request *request, weft_error *err) {                         \
        weft_micro_batch *later = LATER(out);                                                                          \
        weft_micro_batch_request *wide = LATER(request);                                                               \
        weft_status status;                                                                                            \
        WEFT_PLUGIN_CALL(status, real.data, slot, err, made, later, wide);                                             \
        ANSWER(out, later, "weft_micro_batch");                                                                        \
        free(wide);                                                                                                    \
        return status;                                                                                                 \
    }
FETCH(shape)
FETCH(micro_batch)

/* ---- model ---- */

static weft_value model_forward(const weft_model *made, uint32_t segment, weft_graph *g, const weft_ops *ops,
                                weft_value carry) {
    weft_ops *later = LATER(ops);
    const weft_value given = real.model->forward(made, segment, g, later, carry);
    free(later);
    return given;
}

/* ---- adapter ---- */

/* Objects that sites point to live as long as the adapter; the sites themselves do not. */
static weft_status adapter_declare(weft_adapter *made, const weft_adapter_job *job, weft_error *err) {
    weft_adapter_job *later = LATER(job);
    weft_builder *builder = LATER(job->builder);
    void *sites = weft_newer_abi_structs(job->sites, job->n_sites, sizeof *job->sites);
    weft_status status;
    later->sites = sites;
    later->site_stride += WEFT_NEWER_ABI_BYTES;
    later->builder = builder;
    WEFT_PLUGIN_CALL(status, real.adapter, declare, err, made, later);
    free(sites);
    free(builder);
    free(later);
    return status;
}

/* ADAPTED: defines the shim of a slot that records operators at a site. */
#define ADAPTED(name, parameters, ...)                                                                                 \
    static weft_value adapter_##name parameters {                                                                      \
        weft_ops *later = LATER(ops);                                                                                  \
        const weft_value given = real.adapter->name(made, site, g, later, __VA_ARGS__);                                \
        free(later);                                                                                                   \
        return given;                                                                                                  \
    }

ADAPTED(linear,
        (const weft_adapter *made, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
         weft_weight *weight),
        x, weight)
ADAPTED(embedding,
        (const weft_adapter *made, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value ids,
         weft_weight *table),
        ids, table)
ADAPTED(head, (const weft_adapter *made, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x), x)

/* The arguments are a request that an adapter forwards; zeros after them request no feature. */
static weft_value adapter_attention(const weft_adapter *made, uint32_t site, weft_graph *g, const weft_ops *ops,
                                    weft_value q, weft_value k, weft_value v, weft_value starts,
                                    const weft_attention_args *args) {
    weft_ops *later = LATER(ops);
    weft_attention_args *plain = weft_newer_abi_copy(args, 1, sizeof *args, 0);
    const weft_value given = real.adapter->attention(made, site, g, later, q, k, v, starts, plain);
    free(plain);
    free(later);
    return given;
}

static weft_status adapter_tensor(const weft_adapter *made, const char *parameter, weft_adapter_tensor *out,
                                  weft_error *err) {
    weft_adapter_tensor *later = LATER(out);
    weft_status status;
    WEFT_PLUGIN_CALL(status, real.adapter, tensor, err, made, parameter, later);
    ANSWER(out, later, "weft_adapter_tensor");
    return status;
}

/* ---- comm ---- */

/* Passes a struct with zeros, which request no feature. Unknown non-zero fields are rejected before any send. */
static weft_status exchange_plain(weft_exchange_fn *how, weft_comm *made, weft_comm_handle **out,
                                  const weft_exchange *what, weft_error *err) {
    weft_exchange *plain = weft_newer_abi_copy(what, 1, sizeof *what, 0);
    const weft_status status = how(made, out, plain, err);
    free(plain);
    return status;
}

static weft_status must_refuse(weft_exchange_fn *how, weft_comm *made, const weft_exchange *what, const char *sort,
                               const char *fix, weft_error *err) {
    weft_error said = WEFT_ERROR_INIT;
    weft_comm_handle *none = NULL;
    return weft_rejected_check(how(made, &none, what, &said), &said, "it", sort, fix, err);
}

static weft_status exchange(weft_exchange_fn *how, weft_comm *made, weft_comm_handle **out, const weft_exchange *what,
                            weft_error *err) {
    weft_exchange *asking = LATER(what);
    weft_exchange shorter = *what;
    weft_status status =
        must_refuse(how, made, asking,
                    "a weft_exchange that requests a feature beyond the end of SDK 1.0, which it ignores",
                    ". Fix: reject it with weft_struct_known", err);
    free(asking);
    shorter.struct_size = WEFT_SHORTER_BYTES;
    if (status == WEFT_OK)
        status = must_refuse(how, made, &shorter, "a weft_exchange that is shorter than SDK 1.0 has it",
                             ". Fix: reject it with WEFT_WHOLE", err);
    return status == WEFT_OK ? exchange_plain(how, made, out, what, err) : status;
}

/* A barrier reads only the group. */
static weft_status comm_barrier(weft_comm *made, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return exchange_plain(real.comm->barrier, made, out, what, err);
}

#define EXCHANGE(name)                                                                                                 \
    static weft_status comm_##name(weft_comm *made, weft_comm_handle **out, const weft_exchange *what,                 \
                                   weft_error *err) {                                                                  \
        return exchange(real.comm->name, made, out, what, err);                                                        \
    }

EXCHANGE(all_gather)
EXCHANGE(all_to_all)
EXCHANGE(reduce_scatter)
EXCHANGE(all_reduce)
EXCHANGE(broadcast)
EXCHANGE(send)
EXCHANGE(recv)

/* ---- the table ---- */

typedef void slot_fn(void);

#define SHIM(kind, slot)                                                                                               \
    { #kind, offsetof(weft_##kind##_plugin, slot), (slot_fn *)kind##_##slot }

/* Slots that are replaced where the plugin fills them. The others stay the plugin's own. */
static const struct {
    const char *kind;
    size_t at;
    slot_fn *shim;
} shims[] = {
    SHIM(policy, units),     SHIM(strategy, replicas), SHIM(strategy, place),      SHIM(strategy, compile),
    SHIM(optimizer, create), SHIM(optimizer, prepare), SHIM(optimizer, update),    SHIM(tokenizer, create),
    SHIM(tokenizer, info),   SHIM(data, create),       SHIM(data, info),           SHIM(data, split_info),
    SHIM(data, shape),       SHIM(data, micro_batch),  SHIM(model, create),        SHIM(model, info),
    SHIM(model, declare),    SHIM(model, forward),     SHIM(adapter, create),      SHIM(adapter, declare),
    SHIM(adapter, linear),   SHIM(adapter, embedding), SHIM(adapter, attention),   SHIM(adapter, head),
    SHIM(adapter, tensor),   SHIM(adapter, merge),     SHIM(comm, create),         SHIM(comm, info),
    SHIM(comm, all_gather),  SHIM(comm, all_to_all),   SHIM(comm, reduce_scatter), SHIM(comm, all_reduce),
    SHIM(comm, broadcast),   SHIM(comm, barrier),      SHIM(comm, send),           SHIM(comm, recv),
};

static const void *forwarding_table(const char *kind) {
    static union {
        char bytes[1];
        weft_policy_plugin policy;
        weft_strategy_plugin strategy;
        weft_optimizer_plugin optimizer;
        weft_tokenizer_plugin tokenizer;
        weft_data_plugin data;
        weft_model_plugin model;
        weft_adapter_plugin adapter;
        weft_comm_plugin comm;
    } table;
    (void)weft_struct_take(&table, sizeof table, real.table);
    for (size_t i = 0; i < sizeof shims / sizeof shims[0]; i++) {
        char *slot = table.bytes + shims[i].at;
        slot_fn *own = NULL;
        memcpy(&own, slot, sizeof own);
        if (strcmp(shims[i].kind, kind) == 0 && own != NULL) memcpy(slot, &shims[i].shim, sizeof shims[i].shim);
    }
    return &table;
}

const weft_loaded *weft_newer_abi_loaded(const weft_loaded *loaded) {
    static weft_plugin plugin;
    static weft_loaded later;
    if (later.plugin != NULL) return &later;
    real.table = loaded->plugin->table;
    plugin = *loaded->plugin;
    plugin.table = forwarding_table(plugin.kind);
    later = *loaded;
    later.plugin = &plugin;
    weft_plugin_own(&later);
    return &later;
}

const weft_plugin_under_test *weft_newer_abi(const weft_plugin_under_test *tested) {
    static weft_plugin_under_test later;
    if (later.loaded == NULL) later = *tested;
    later.loaded = weft_newer_abi_loaded(tested->loaded);
    return &later;
}

weft_status weft_newer_abi_check(weft_status status, bool is_same, const char *what, weft_error *err) {
    if (mistake[0] != '\0') return WEFT_BROKEN(err, "%s", mistake);
    if (status == WEFT_E_MEMORY) return status;
    if (status != WEFT_OK) {
        err->code = WEFT_E_PLUGIN;
        return weft_error_prefix(err, "in a newer host, with longer structs, it fails: ");
    }
    if (is_same) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "in a newer host, with longer structs, it returns different %s: it indexes an array by its own "
                       "sizeof and not by the stride, or copies a struct by its struct_size",
                       what);
}
