/* size: packs consecutive modules into units of at most N elements.
 *
 * It packs the largest modules with at most N elements, so a block of at most N elements is not divided. A module with
 * more than N elements of its own is a separate unit; parameters are not divided. The root unit is empty, unless the
 * model fits in one unit. */
#include <weft/policy.h>

#define SIZE_KEYS(K)                                                                                                   \
    K(I64, size, "20M", "[1,inf)", "elements", WEFT_SAME,                                                              \
      "Maximum elements of a unit; a module with more of its own is a unit by itself.")
WEFT_KEYS(size_config, SIZE_KEYS)

/* Parameters that stay together: a module's complete subtree, or a large module's own parameters. */
typedef struct piece {
    int32_t module;
    int64_t elements;
} piece;

static piece piece_of(const weft_policy_job *job, int64_t most, uint32_t parameter) {
    int32_t m = weft_policy_parameter(job, parameter)->module;
    piece made;
    made.module = m;
    made.elements = weft_policy_module(job, (uint32_t)m)->own_parameters;
    for (; m >= 0; m = weft_policy_module(job, (uint32_t)m)->parent) {
        const weft_module_view *module = weft_policy_module(job, (uint32_t)m);
        if (module->parameters > most) break;
        made.module = m;
        made.elements = module->parameters;
    }
    return made;
}

/* Units before they are named: a name requires the unit's last module. */
typedef struct packing {
    int32_t *unit_of;      /* [n_modules] unit of a packed module; -1: not packed yet */
    int32_t *first, *last; /* [n_parameters] first and last module of each unit */
    int32_t n_units;
} packing;

/* Assigns parameters to units. A parameter of a packed module belongs to its unit, regardless of its position in the
 * list. */
static void pack(packing *self, const weft_policy_job *job, int64_t most) {
    int64_t elements = 0;
    uint32_t p;
    for (p = 0; p < job->n_parameters; p++) {
        const piece next = piece_of(job, most, p);
        if (self->unit_of[next.module] >= 0) continue;
        if (self->n_units == 0 || elements + next.elements > most) {
            elements = 0;
            self->first[self->n_units++] = next.module;
        }
        elements += next.elements;
        self->last[self->n_units - 1] = next.module;
        self->unit_of[next.module] = self->n_units - 1;
    }
}

static int32_t make_unit(const weft_wrap *wrap, const weft_module_view *first, const weft_module_view *last) {
    char name[2048];
    if (first == last && first->path[0] == 0) return WEFT_UNIT_ROOT;
    if (first == last) (void)snprintf(name, sizeof name, "%s", first->path);
    else (void)snprintf(name, sizeof name, "%s..%s", first->path, last->path);
    return wrap->unit(wrap->ctx, name);
}

static void claim(packing *self, const weft_policy_job *job, const weft_wrap *wrap, int64_t most) {
    int32_t u;
    uint32_t p;
    for (u = 0; u < self->n_units; u++) /* from here on `first` contains the host's unit numbers */
        self->first[u] = make_unit(wrap, weft_policy_module(job, (uint32_t)self->first[u]),
                                   weft_policy_module(job, (uint32_t)self->last[u]));
    for (p = 0; p < job->n_parameters; p++)
        wrap->claim(wrap->ctx, self->first[self->unit_of[piece_of(job, most, p).module]], (int32_t)p);
}

static weft_status size_units(const weft_host *host, const void *config, const weft_policy_job *job,
                              const weft_wrap *wrap, weft_error *err) {
    const int64_t most = ((const size_config *)config)->size;
    const size_t n = job->n_modules + 2 * (size_t)job->n_parameters;
    int32_t *memory = (int32_t *)host->alloc(host, n * sizeof *memory + 1, 8);
    packing units;
    if (memory == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Policy size has no memory for %zu numbers.", n);
    memset(memory, 0xFF, n * sizeof *memory); /* -1 */
    units.unit_of = memory;
    units.first = memory + job->n_modules;
    units.last = units.first + job->n_parameters;
    units.n_units = 0;
    pack(&units, job, most);
    claim(&units, job, wrap, most);
    host->release(host, memory);
    return WEFT_OK;
}

static const weft_policy_plugin size_table = {(uint32_t)sizeof(weft_policy_plugin), 0, size_units};

WEFT_PLUGIN(policy, 1, "size", "0.1.0", "Units of about as many elements each.", size_config, NULL, size_table)
