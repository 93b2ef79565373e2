/* host/run/validate.c: see validate.h. */
#include "run/validate.h"

#include "plugin/enter.h"

#include <float.h>
#include <regex.h>
#include <stdlib.h>

static const char *split_name(int32_t split) {
    return split == WEFT_SPLIT_TRAIN ? "training" : split == WEFT_SPLIT_VALIDATION ? "validation" : "all";
}

weft_status weft_data_validate(const weft_data_info *info, weft_split_info *const infos[3], int64_t max_context,
                               bool training, weft_error *err) {
    if (info->n_lengths < 1 || info->n_lengths > WEFT_MAX_LENGTHS)
        return weft_error_set(err, WEFT_E_PLUGIN, "its info declares %d lengths of micro-batches. Allowed: 1 to %d",
                              (int)info->n_lengths, WEFT_MAX_LENGTHS);
    for (int32_t i = 0; i < info->n_lengths; i++) {
        const int32_t length = info->lengths[i], before = i == 0 ? 0 : info->lengths[i - 1];
        if (length <= before || length > max_context)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "its info declares length %d after %d. Allowed: increasing lengths from 1 to the "
                                  "model's %lld",
                                  (int)length, (int)before, (long long)max_context);
    }
    for (int32_t i = 0; i < 3; i++) {
        const uint64_t longest = (uint64_t)info->lengths[info->n_lengths - 1], rows = infos[i]->rows;
        if (rows > UINT64_MAX / longest)
            return weft_error_set(err, WEFT_E_PLUGIN, "its split %s has %llu sequences, more than can be counted",
                                  split_name(i), (unsigned long long)rows);
        if (infos[i]->targets > rows * longest)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "its split %s has %llu targets, more than %llu sequences of %d positions",
                                  split_name(i), (unsigned long long)infos[i]->targets, (unsigned long long)rows,
                                  (int)longest);
    }
    if (!training || infos[WEFT_SPLIT_TRAIN]->rows > 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "its split training has no sequences, but its create returns WEFT_OK");
}

weft_micro_batch_bounds weft_micro_batch_bounds_of(const weft_plan *plan) {
    return (weft_micro_batch_bounds){plan->declared->info.vocab_size, weft_plan_table_rows(&plan->spec),
                                     plan->spec.lengths, plan->spec.n_lengths};
}

weft_status weft_micro_batch_validate_shape(const weft_micro_batch *micro_batch,
                                            const weft_micro_batch_request *request,
                                            const weft_micro_batch_bounds *bounds, weft_error *err) {
    const long long most = (long long)micro_batch->rows * micro_batch->length;
    char where[80];
    int32_t i = 0;
    (void)snprintf(where, sizeof where, "its micro-batch at sequence %llu of split %s",
                   (unsigned long long)request->first_row, split_name(request->split));
    if (micro_batch->rows != request->rows)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s has %d sequences, and %d were requested", where,
                              (int)micro_batch->rows, (int)request->rows);
    while (i < bounds->n_lengths && bounds->lengths[i] != micro_batch->length) i++;
    if (i == bounds->n_lengths)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s has length %d, which its info does not declare", where,
                              (int)micro_batch->length);
    if (micro_batch->n_targets >= 0 && micro_batch->n_targets <= most) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "%s has %lld targets. Allowed: 0 to %lld", where,
                          (long long)micro_batch->n_targets, most);
}

/* Validates a sequence whose arrays begin at `at`; adds its nonzero weights to *targets. row: its number, for err. */
static weft_status validate_row(const weft_micro_batch *of, int64_t at, const weft_micro_batch_bounds *bounds,
                                unsigned long long row, int32_t split, int64_t *targets, weft_error *err) {
    const int32_t *ids = of->ids + at, *wanted = of->targets + at, *starts = of->starts + at;
    const int32_t *positions = of->positions + at;
    const float *weights = of->weights + at;
    for (int32_t t = 0; t < of->length; t++) {
        const bool start = starts[t] == t || (t > 0 && starts[t] == starts[t - 1]);
        const bool weight = weights[t] >= 0.0f && weights[t] <= FLT_MAX; /* not NaN */
        const bool id = (uint32_t)ids[t] < (uint32_t)bounds->vocabulary;
        const bool target = (uint32_t)wanted[t] < (uint32_t)bounds->vocabulary;
        char allowed[80];
        *targets += weights[t] != 0.0f;
        if (id && target && weight && start && (uint32_t)positions[t] < (uint32_t)bounds->positions) continue;
        if (!id || !target) (void)snprintf(allowed, sizeof allowed, "0 to %lld", (long long)bounds->vocabulary - 1);
        else if (!weight) (void)strcpy(allowed, "a finite number from 0");
        else if (!start) (void)strcpy(allowed, "the position, or the start of the previous one");
        else (void)snprintf(allowed, sizeof allowed, "0 to %lld", (long long)bounds->positions - 1);
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "sequence %llu of split %s, position %d: its %s is %.10g. Allowed: %s", row,
                              split_name(split), (int)t,
                              !id       ? "id"
                              : !target ? "target"
                              : !weight ? "weight"
                              : !start  ? "start"
                                        : "position",
                              !id       ? ids[t]
                              : !target ? wanted[t]
                              : !weight ? (double)weights[t]
                              : !start  ? starts[t]
                                        : positions[t],
                              allowed);
    }
    return WEFT_OK;
}

weft_status weft_micro_batch_validate(const weft_micro_batch *micro_batch, const weft_micro_batch *requested,
                                      const weft_micro_batch_request *request, const weft_micro_batch_bounds *bounds,
                                      weft_error *err) {
    int64_t targets = 0;
    weft_status status = WEFT_OK;
    if (micro_batch->ids != requested->ids || micro_batch->targets != requested->targets ||
        micro_batch->weights != requested->weights || micro_batch->starts != requested->starts ||
        micro_batch->positions != requested->positions)
        return weft_error_set(err, WEFT_E_PLUGIN, "its micro_batch replaces the arrays that it must fill");
    status = weft_micro_batch_validate_shape(micro_batch, request, bounds, err);
    for (int32_t r = 0; r < micro_batch->rows && status == WEFT_OK; r++)
        status = validate_row(micro_batch, (int64_t)r * micro_batch->length, bounds,
                              (unsigned long long)request->first_row + (unsigned)r, request->split, &targets, err);
    if (status != WEFT_OK || targets == micro_batch->n_targets) return status;
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "its micro-batch at sequence %llu of split %s declares %lld targets, but %lld of its weights are "
        "not 0",
        (unsigned long long)request->first_row, split_name(request->split), (long long)micro_batch->n_targets,
        (long long)targets);
}

weft_status weft_micro_batch_fetch(weft_micro_batch *out, void *memory, int64_t part, const weft_data_plugin *plugin,
                                   weft_data *data, const weft_micro_batch_request *request, const weft_plan *plan,
                                   const weft_micro_batch *shape, weft_error *err) {
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(plan);
    char *at = memory;
    const weft_micro_batch requested = {.struct_size = (uint32_t)sizeof requested,
                                        .ids = memory,
                                        .targets = (int32_t *)(void *)(at + part),
                                        .weights = (float *)(void *)(at + 2 * part),
                                        .starts = (int32_t *)(void *)(at + 3 * part),
                                        .positions = (int32_t *)(void *)(at + 4 * part)};
    weft_status status = WEFT_OK;
    *out = requested;
    memset(memory, WEFT_MICRO_BATCH_POISON, (size_t)(WEFT_MICRO_BATCH_PARTS * part));
    WEFT_PLUGIN_CALL(status, plugin, micro_batch, err, data, out, request);
    if (status != WEFT_OK) return status;
    if (shape != NULL && (out->length != shape->length || out->n_targets != shape->n_targets))
        status =
            weft_error_set(err, WEFT_E_PLUGIN,
                           "its shape reports %d positions and %lld targets for the micro-batch at sequence %llu, but "
                           "its micro_batch returns %d and %lld",
                           (int)shape->length, (long long)shape->n_targets, (unsigned long long)request->first_row,
                           (int)out->length, (long long)out->n_targets);
    if (status == WEFT_OK) status = weft_micro_batch_validate(out, &requested, request, &bounds, err);
    return weft_plugin_blame(plugin, status, err);
}

static weft_status check_slot(const weft_state_slot *slots, int64_t i, const char *id, weft_error *err) {
    const weft_state_slot *slot = &slots[i];
    const char *name = slot->name, *dtype = weft_dtype_name(slot->dtype);
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL || strcmp(name, "master") == 0 ||
        strlen(name) >= 200) /* it is a file of a checkpoint */
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "optimizer %s: a state called '%s' cannot be saved. Allowed: a plain name except 'master'", id,
            name == NULL ? "" : name);
    for (int64_t before = 0; before < i; before++)
        if (strcmp(slots[before].name, name) == 0)
            return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares two states called '%s'", id, name);
    if (slot->dtype != WEFT_F32 && slot->dtype != WEFT_BF16)
        return weft_error_set(
            err, WEFT_E_UNSUPPORTED,
            "optimizer %s declares its state %s as %s. Allowed: fp32, bf16; [optimizer] states = 8bit "
            "converts it to blocks",
            id, name, dtype);
    if (slot->block != 1 || slot->block_bytes != weft_dtype_bytes(slot->dtype))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s declares its state %s in blocks of %d elements and %lld bytes. Allowed for "
                              "%s: 1 and %lld",
                              id, name, (int)slot->block, (long long)slot->block_bytes, dtype,
                              (long long)weft_dtype_bytes(slot->dtype));
    if ((slot->flags & ~(WEFT_STATE_NOT_NEGATIVE | WEFT_STATE_AS_DECLARED)) != 0)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "optimizer %s: this host does not know flags 0x%x of its state %s", id,
                              (unsigned)slot->flags, name);
    return WEFT_OK;
}

/* The distance of rows is that of the plugin's headers. */
static weft_status take_slots(weft_optimizer_facts *out, const weft_state_slot *rows, uint32_t stride, const char *id,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    if (out->n_states < 0 || out->n_states > WEFT_MAX_STATES)
        return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares %lld states. Allowed: at most %d", id,
                              (long long)out->n_states, WEFT_MAX_STATES);
    if (out->n_states > 0 && (rows == NULL || stride < WEFT_SIZE_1_0(weft_state_slot) || stride % 8 != 0))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s has %lld states at a stride of %u bytes. Allowed: sizeof(weft_state_slot)",
                              id, (long long)out->n_states, (unsigned)stride);
    for (int64_t i = 0; i < out->n_states && status == WEFT_OK; i++) {
        const weft_state_slot *state_row = (const weft_state_slot *)(const void *)((const char *)rows + i * stride);
        if (!WEFT_WHOLE(state_row, weft_state_slot) || state_row->struct_size > stride)
            return weft_error_set(
                err, WEFT_E_PLUGIN,
                "optimizer %s declares its state %lld with struct_size %u. Allowed: %u to the stride %u", id,
                (long long)i, (unsigned)state_row->struct_size, (unsigned)WEFT_SIZE_1_0(weft_state_slot),
                (unsigned)stride);
        if (!weft_struct_take(&out->states[i], sizeof out->states[i], state_row))
            return weft_error_set(
                err, WEFT_E_UNSUPPORTED,
                "optimizer %s: its state %lld has fields after the %zu bytes that this host knows. Fix: "
                "build it with this host's headers, or use a later host",
                id, (long long)i, sizeof *state_row);
        status = check_slot(out->states, i, id, err);
    }
    return status;
}

static bool matches(const char *text, const char *pattern) {
    regex_t compiled;
    const bool is_valid = regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0;
    const bool found = is_valid && regexec(&compiled, text, 0, NULL, 0) == 0;
    if (is_valid) regfree(&compiled);
    return found;
}

#define WS        "[ \t\n]*"
#define TYPE      "(const|volatile|float|int|unsigned|signed|int32_t|uint32_t)"
#define NAME      WS "[A-Za-z_][A-Za-z_0-9]*" WS "(\\[[0-9]+\\])?" WS
#define WIDE_TYPE "(double|long|u?int64_t|size_t|ptrdiff_t|u?intptr_t)"

/* Parses the text of the struct's members, "float a, b[4];". If it has another form, the guard after hp checks the size
 * during the run. */
static weft_status check_hp(int64_t bytes, const weft_elementwise *update, const char *id, weft_error *err) {
    const bool read = matches(update->hp_fields, "^([ \t\n;]*(" TYPE "[ \t\n]+)+" NAME "(," NAME ")*;)*[ \t\n;]*$");
    const bool wide = matches(update->hp_fields, "(^|[^A-Za-z_0-9])(" WIDE_TYPE "([^A-Za-z_0-9]|$)|"
                                                 "[A-Za-z_][A-Za-z_0-9]*" WS "[*])");
    int64_t members = 0, elements = 0;
    for (const char *at = update->hp_fields; *at != '\0'; at++) {
        if (*at == '[') elements = strtoll(at + 1, NULL, 10);
        else if (*at == ',' || *at == ';') members += elements, elements = 0;
        else if (elements == 0 && strchr(" \t\n]", *at) == NULL) elements = 1; /* a name */
    }
    if (wide)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "optimizer %s has a member of 8 bytes in its hp, %s: \"%.200s\". Allowed: float, int32_t, "
            "uint32_t",
            id, update->hp_name, update->hp_fields);
    if (read && bytes < 4 * members)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "optimizer %s returns %lld in hp_size, but %s has %lld members of 4 bytes, \"%.200s\". Fix: "
            "return (int64_t)sizeof(%s)",
            id, (long long)bytes, update->hp_name, (long long)members, update->hp_fields, update->hp_name);
    return WEFT_OK;
}

weft_status weft_optimizer_validate(weft_optimizer_facts *out, const weft_optimizer_plugin *plugin,
                                    const weft_optimizer *optimizer, const char *id, weft_error *err) {
    uint32_t stride = 0;
    const weft_state_slot *rows = NULL;
    const weft_elementwise *update = NULL;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    WEFT_PLUGIN_QUERY(rows, plugin, states, optimizer, &out->n_states, &stride);
    WEFT_PLUGIN_QUERY(out->hp_bytes, plugin, hp_size, optimizer);
    WEFT_PLUGIN_QUERY(update, plugin, update, optimizer);
    status = weft_plugin_take_failure(err);
    if (status == WEFT_OK) status = take_slots(out, rows, stride, id, err);
    if (status == WEFT_OK && (out->hp_bytes < 4 || out->hp_bytes > WEFT_MAX_HP || out->hp_bytes % 4 != 0))
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "optimizer %s declares %lld bytes of hp. Allowed: 4 to %d, in multiples of 4", id,
                                (long long)out->hp_bytes, WEFT_MAX_HP);
    if (status != WEFT_OK) return status;
    if (update == NULL || !WEFT_WHOLE(update, weft_elementwise) || update->name == NULL || update->hp_name == NULL ||
        update->hp_fields == NULL || update->body == NULL || update->cpu == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s has no complete update. Fix: define it by WEFT_ELEMENTWISE", id);
    if (update->n_states != out->n_states)
        return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares %lld states, and its update %s has %lld", id,
                              (long long)out->n_states, update->name, (long long)update->n_states);
    return check_hp(out->hp_bytes, update, id, err);
}
