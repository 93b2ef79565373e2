/* host/run/restore.c: loads a checkpoint into an allocated engine: the weights as any model's, then the masters, which
 * replace rounded weights, then each optimizer state. */
#include "adapter/adapter_load.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "run/checkpoint.h"
#include "run/engine.h"
#include "run/save.h"

#include <stdlib.h>

static const weft_identity *find_identity(const weft_identities *identities, const char *name) {
    for (int32_t i = 0; i < identities->n; i++)
        if (strcmp(identities->items[i].name, name) == 0) return &identities->items[i];
    return NULL;
}

/* A fact in the checkpoint and now; one may be missing. */
typedef struct difference {
    const weft_identity *before, *now;
} difference;

static const char *value_of(const weft_identity *identity) {
    return identity != NULL ? identity->value : "(none)";
}

static bool is_noted(const difference *d) {
    return d->now != NULL ? d->now->noted : d->before->noted;
}

static const char *name_of(const difference *d) {
    return d->now != NULL ? d->now->name : d->before->name;
}

/* out [now->n + before->n] */
static int32_t list_differences(difference *out, const weft_identities *before, const weft_identities *now) {
    int32_t n = 0;
    for (int32_t i = 0; i < now->n; i++) {
        const difference d = {find_identity(before, now->items[i].name), &now->items[i]};
        if (d.before == NULL || strcmp(d.before->value, d.now->value) != 0) out[n++] = d;
    }
    for (int32_t i = 0; i < before->n; i++) {
        const difference d = {&before->items[i], find_identity(now, before->items[i].name)};
        if (d.now == NULL) out[n++] = d;
    }
    return n;
}

static weft_status refuse_differences(const difference *list, int32_t n, const char *path, weft_error *err) {
    char text[1500] = "";
    int32_t shown = 0, all = 0;
    for (int32_t i = 0; i < n; i++) {
        const size_t used = strlen(text);
        int wrote = 0;
        if (is_noted(&list[i])) continue;
        all++;
        wrote = snprintf(text + used, sizeof text - used, "\n  %s is %s, was %s", name_of(&list[i]),
                         value_of(list[i].now), value_of(list[i].before));
        if (wrote > 0 && (size_t)wrote < sizeof text - used) shown++;
        else text[used] = '\0';
    }
    if (all == 0) return WEFT_OK;
    if (shown < all) (void)snprintf(text + strlen(text), sizeof text - strlen(text), "\n  and %d more", all - shown);
    return weft_error_set(
        err, WEFT_E_USER,
        "%s was made by a run that differs from this one:%s\nSet this back, or go on with "
        "--resume=inexact, which accepts and records it; the numbers are then not those of a run that "
        "never stopped",
        path, text);
}

weft_status weft_record_compare(const weft_record *record, weft_identities *now, bool inexact, const weft_host *host,
                                const char *path, weft_error *err) {
    const weft_identities *before = &record->identities;
    difference *list = weft_alloc(before->n + now->n, sizeof *list);
    const int32_t n = list_differences(list, before, now);
    const weft_status status = inexact ? WEFT_OK : refuse_differences(list, n, path, err);
    if (host != NULL && status == WEFT_OK) {
        now->changes = weft_realloc(now->changes, now->n_changes + before->n_changes + n, sizeof *now->changes);
        for (int32_t i = 0; i < before->n_changes; i++) now->changes[now->n_changes++] = before->changes[i];
        for (int32_t i = 0; i < n; i++) {
            const difference *d = &list[i];
            weft_change *change = &now->changes[now->n_changes++];
            weft_log(host, is_noted(d) ? WEFT_LOG_INFO : WEFT_LOG_WARN, "resume: %s is %s, was %s", name_of(d),
                     value_of(d->now), value_of(d->before));
            memset(change, 0, sizeof *change);
            change->step = record->state.step;
            (void)snprintf(change->name, sizeof change->name, "%s", name_of(d));
            (void)snprintf(change->from, sizeof change->from, "%s", value_of(d->before));
            (void)snprintf(change->to, sizeof change->to, "%s", value_of(d->now));
        }
    }
    free(list);
    return status;
}

static bool has_shape(const weft_tensor *tensor, const weft_tensor_spec *spec) {
    bool same = tensor->rank == spec->rank;
    for (int32_t d = 0; same && d < spec->rank; d++) same = tensor->dims[d] == spec->dims[d];
    return same;
}

/* Masters are fp32; a state is as the run keeps it, or in plain numbers that can be rounded to that. dtype: 0 for
 * masters. */
static weft_status check_tensor(const weft_tensor *tensor, const weft_parameter *p, int32_t dtype, const char *path,
                                weft_error *err) {
    const int32_t kept = dtype == 0 ? WEFT_F32 : dtype;
    const weft_tensor_spec spec = weft_packed_state_spec(p, kept), plain = weft_packed_state_spec(p, WEFT_F32);
    const bool is_number = tensor->dtype == WEFT_F32 || tensor->dtype == WEFT_BF16 || tensor->dtype == WEFT_F16;
    if (tensor->dtype == spec.dtype && has_shape(tensor, &spec)) return WEFT_OK;
    if (dtype != 0 && is_number && !weft_dtype_is_packed(kept) && has_shape(tensor, &plain)) return WEFT_OK;
    if (dtype != 0 && (has_shape(tensor, &plain) || tensor->dtype == WEFT_U8))
        return weft_error_set(err, WEFT_E_USER,
                              "%s: has '%s' in another type than %s, in which this run keeps it, and 8-bit blocks are "
                              "not made from others or into others: set [optimizer] states back, or start the state "
                              "anew with --resume=inexact and without this file",
                              path, p->name, weft_dtype_name(kept));
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: tensor '%s' has not the shape in %s that the model gives it: this "
                          "checkpoint belongs to another model",
                          path, p->name, kept == WEFT_F32 ? "F32" : weft_dtype_name(kept));
}

/* Loads a file of state/ into a region: its trained parameters, or all. n_missing: trained ones that it lacks. */
static weft_status load_region(const weft_region *region, weft_safetensors *file, bool trainable_only,
                               int32_t *n_missing, weft_error *err) {
    const weft_declared *declared = region->declared;
    const weft_tensor **tensors = weft_alloc(declared->n_parameters, sizeof(const weft_tensor *));
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (trainable_only && !p->trainable) continue;
        tensors[i] = weft_safetensors_find(file, p->name);
        if (tensors[i] == NULL) *n_missing += p->trainable;
        else status = check_tensor(tensors[i], p, region->dtype, file->files[0].path, err);
    }
    if (status == WEFT_OK) status = weft_weights_read(region, file, tensors, err);
    free(tensors);
    return status;
}

static weft_status find_state_path(char out[WEFT_PATH_BYTES], const char *checkpoint, const char *name,
                                   weft_error *err) {
    char file_name[256];
    (void)snprintf(file_name, sizeof file_name, "state/%s.safetensors", name);
    return weft_path_join(out, checkpoint, file_name, err);
}

/* Loads state/NAME.safetensors. With inexact, the file or parameters in it may be missing and stay unchanged. */
static weft_status restore_file(const weft_engine *engine, const char *path, const char *name,
                                const weft_region *region, bool trainable_only, bool inexact, const char *instead,
                                weft_error *err) {
    char file_path[WEFT_PATH_BYTES];
    weft_safetensors *file = NULL;
    int32_t missing = 0;
    bool is_there = true;
    weft_status status = find_state_path(file_path, path, name, err);
    if (status == WEFT_OK && inexact) status = weft_file_exists(&is_there, file_path, err);
    if (status != WEFT_OK) return status;
    if (!is_there) {
        weft_log(engine->plan.run->host, WEFT_LOG_WARN, "resume: %s is not there: all of it %s", file_path, instead);
        return WEFT_OK;
    }
    status = weft_safetensors_open(&file, file_path, err);
    if (status == WEFT_OK) status = load_region(region, file, trainable_only, &missing, err);
    if (status == WEFT_OK && missing > 0 && !inexact)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: lacks %d of the parameters that are trained", file_path, missing);
    else if (status == WEFT_OK && missing > 0)
        weft_log(engine->plan.run->host, WEFT_LOG_WARN,
                 "resume: %s lacks %d of the parameters that are trained now: they %s", file_path, missing, instead);
    weft_safetensors_close(file);
    return status;
}

/* updates: the checkpoint's count. If a complete state starts at zero, which only `inexact` allows, the optimizer
 * counts from zero too. */
static weft_status restore_states(weft_engine *engine, const char *path, uint64_t updates, bool inexact,
                                  weft_error *err) {
    char file[WEFT_PATH_BYTES];
    bool is_there = true;
    weft_status status = WEFT_OK;
    engine->updates = updates;
    for (int64_t i = 0; i < engine->plan.n_states && status == WEFT_OK; i++) {
        const weft_region region = weft_engine_state(engine, i);
        const int64_t words = engine->plan.holds[WEFT_HOLD_STATES + i]->bytes / WEFT_WORD;
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, region.ref, 0, words);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
        if (status == WEFT_OK)
            status =
                restore_file(engine, path, engine->plan.states[i].name, &region, true, inexact, "start at zero", err);
        if (status == WEFT_OK) status = find_state_path(file, path, engine->plan.states[i].name, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_there, file, err);
        if (status == WEFT_OK && !is_there) engine->updates = 0;
    }
    return status;
}

/* Checked before the facts: those of another model differ too, and no flag accepts another model. */
static weft_status check_model(const weft_engine *engine, const char *path, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    weft_safetensors *files = NULL;
    const bool has_base = weft_plan_saves_base(&engine->plan);
    weft_status status = has_base ? weft_safetensors_open_directory(&files, path, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    if (has_base) status = weft_weights_check_files(engine->plan.declared, files, path, &why);
    if (status == WEFT_OK && engine->plan.declared->n_adapters > 0)
        status = weft_adapter_check(engine->plan.declared, path, WEFT_ADAPTER_SAVED, &why);
    weft_safetensors_close(files);
    if (status == WEFT_OK) return WEFT_OK;
    if (status != WEFT_E_DATA) return weft_error_set(err, status, "%s", why.text);
    return weft_error_set(err, WEFT_E_USER,
                          "%s. This checkpoint is of another model: resume with the [model] path and base that it was "
                          "made with, or start in another [run] out",
                          why.text);
}

/* Restores the device's kernel algorithms. If another library version does not have one, the numbers differ, and the
 * facts have reported it. */
static weft_status restore_choices(weft_engine *engine, const weft_record *record, bool inexact, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const weft_status status = weft_engine_take_choices(engine, &record->choices, &why);
    if (status == WEFT_OK) return WEFT_OK;
    if (status != WEFT_E_UNSUPPORTED || !inexact)
        return weft_error_set(err, status, "what this run's device has chosen cannot be taken up again: %s", why.text);
    weft_log(engine->plan.run->host, WEFT_LOG_WARN, "resume: what this run's device had chosen is chosen anew: %s",
             why.text);
    return WEFT_OK;
}

weft_status weft_checkpoint_check(const weft_engine *engine, const char *path, const weft_identities *identities,
                                  bool inexact, weft_error *err) {
    char file[WEFT_PATH_BYTES];
    weft_identities now = *identities;
    weft_record record = {0};
    weft_status status = weft_path_join(file, path, "state/run.json", err);
    if (status == WEFT_OK) status = weft_record_load(&record, file, err);
    if (status == WEFT_OK) status = check_model(engine, path, err);
    if (status == WEFT_OK) status = weft_record_compare(&record, &now, inexact, NULL, path, err);
    weft_record_clear(&record);
    return weft_process_group_agree(&engine->peers, status, err);
}

/* Restores this rank's shards. An adapter's base is loaded from its own directory. */
static weft_status restore_own(weft_engine *engine, const char *path, weft_identities *identities, bool inexact,
                               weft_error *err) {
    const weft_region parameters = weft_engine_parameters(engine);
    char file[WEFT_PATH_BYTES];
    weft_record record = {0};
    int32_t rounded = 0;
    weft_status status = weft_path_join(file, path, "state/run.json", err);
    if (status == WEFT_OK) status = weft_record_load(&record, file, err);
    if (status == WEFT_OK) status = check_model(engine, path, err);
    if (status == WEFT_OK)
        status = weft_record_compare(&record, identities, inexact, engine->plan.run->host, path, err);
    if (status == WEFT_OK) status = restore_choices(engine, &record, inexact, err);
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++)
        rounded += weft_dtype_bytes(engine->plan.declared->parameters[i].dtype) == 2 &&
                   !engine->plan.declared->parameters[i].trainable;
    if (status == WEFT_OK && inexact && rounded > 0) /* frozen now, or computed in another type */
        weft_log(engine->plan.run->host, WEFT_LOG_WARN,
                 "resume: %d frozen parameters are kept in %s as the base has them: what %s holds of them in a "
                 "wider type is rounded; train them too, or take that checkpoint as [model] path, to keep it",
                 (int)rounded, weft_dtype_name(engine->plan.dtype), path);
    if (status == WEFT_OK)
        status = weft_weights_load(&parameters,
                                   weft_plan_saves_base(&engine->plan) ? path : engine->plan.run->settings.model.path,
                                   err);
    if (status == WEFT_OK) status = weft_adapter_load(&parameters, path, 0, err);
    if (status == WEFT_OK && record.masters != WEFT_MASTERS_NONE)
        status =
            restore_file(engine, path, "master", &parameters, false, inexact, "come from the rounded weights", err);
    if (status == WEFT_OK) status = weft_engine_refresh_copy(engine, false, err);
    if (status == WEFT_OK) status = restore_states(engine, path, record.updates, inexact, err);
    if (status == WEFT_OK) {
        weft_loss_scale_begin(&engine->scale, &engine->plan.run->settings.train);
        if (record.scale.scale > 0.0f && weft_plan_scales(&engine->plan)) engine->scale = record.scale;
        engine->stored_dtype = record.stored_dtype;
    }
    weft_record_clear(&record);
    return status;
}

weft_status weft_checkpoint_restore(weft_engine *engine, const char *path, weft_identities *identities, bool inexact,
                                    weft_error *err) {
    return weft_process_group_agree(&engine->peers, restore_own(engine, path, identities, inexact, err), err);
}
