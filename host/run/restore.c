/* host/run/restore.c: loads a checkpoint into an allocated engine: the weights as any model's, then the masters, which
 * replace rounded weights, then each optimizer state. */
#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "model/convert.h"
#include "model/weights.h"
#include "plugin/enter.h"
#include "run/checkpoint.h"

#include <stdlib.h>

static const weft_identity *find_identity(const weft_identities *identities, const char *name) {
    for (int32_t i = 0; i < identities->n; i++)
        if (strcmp(identities->items[i].name, name) == 0) return &identities->items[i];
    return NULL;
}

/* Notes a fact that differs. NULL: missing in the checkpoint, or now. */
static void add_change(weft_identities *to, uint64_t step, const weft_identity *was, const weft_identity *is) {
    const weft_identity *any = is != NULL ? is : was;
    weft_change *change = &to->changes[to->n_changes++];
    *change = (weft_change){.step = step, .noted = any->noted};
    (void)snprintf(change->name, sizeof change->name, "%s", any->name);
    (void)snprintf(change->from, sizeof change->from, "%s", was == NULL ? "(none)" : was->value);
    (void)snprintf(change->to, sizeof change->to, "%s", is == NULL ? "(none)" : is->value);
}

static weft_status reject_changes(const weft_change *list, int32_t n, const char *path, weft_error *err) {
    char text[1500] = "";
    int32_t shown = 0, all = 0;
    for (int32_t i = 0; i < n; i++) {
        const size_t used = strlen(text);
        int wrote = 0;
        if (list[i].noted) continue;
        all++;
        wrote =
            snprintf(text + used, sizeof text - used, "\n  %s is %s, was %s", list[i].name, list[i].to, list[i].from);
        if (wrote > 0 && (size_t)wrote < sizeof text - used) shown++;
        else text[used] = '\0';
    }
    if (all == 0) return WEFT_OK;
    if (shown < all) weft_words_append(text, sizeof text, "\n  and %d more", all - shown);
    return weft_error_set(
        err, WEFT_E_USER,
        "%s was made by a run that differs from this one:%s\nFix: restore these settings, or continue "
        "with --resume=inexact, which accepts and records the differences; the numbers then differ from "
        "those of an uninterrupted run",
        path, text);
}

/* Compares the facts of a checkpoint with the current ones. Fails with all fixed facts that differ, unless inexact.
 * Logs the differences, and adds them and the record's changes to now->changes; host NULL: it only checks. */
static weft_status compare_facts(const weft_record *record, weft_identities *now, bool inexact, const weft_host *host,
                                 const char *path, weft_error *err) {
    const weft_identities *before = &record->identities;
    weft_identities found = {.changes = weft_alloc(before->n + now->n, sizeof *found.changes)};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < now->n; i++) {
        const weft_identity *item = &now->items[i], *old = find_identity(before, item->name);
        if (old == NULL || strcmp(old->value, item->value) != 0) add_change(&found, record->state.step, old, item);
    }
    for (int32_t i = 0; i < before->n; i++)
        if (find_identity(now, before->items[i].name) == NULL)
            add_change(&found, record->state.step, &before->items[i], NULL);
    if (!inexact) status = reject_changes(found.changes, found.n_changes, path, err);
    if (host != NULL && status == WEFT_OK) {
        now->changes =
            weft_realloc(now->changes, now->n_changes + before->n_changes + found.n_changes, sizeof *now->changes);
        for (int32_t i = 0; i < before->n_changes; i++) now->changes[now->n_changes++] = before->changes[i];
        for (int32_t i = 0; i < found.n_changes; i++) {
            const weft_change *change = &found.changes[i];
            weft_log(host, change->noted ? WEFT_LOG_INFO : WEFT_LOG_WARN, "resume: %s is %s, was %s", change->name,
                     change->to, change->from);
            now->changes[now->n_changes++] = *change;
        }
    }
    weft_identities_clear(&found);
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
    return weft_error_set(
        err, WEFT_E_USER,
        "%s. This checkpoint is of another model. Fix: resume with its [model] path and base, or start "
        "in another [run] out",
        why.text);
}

/* Loads and checks the record; weft_record_clear afterwards, also after a failure. host: as of compare_facts. */
static weft_status open_record(weft_record *out, const weft_engine *engine, const char *path, weft_identities *now,
                               bool inexact, const weft_host *host, weft_error *err) {
    char file[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(file, path, "state/run.json", err);
    if (status == WEFT_OK) status = weft_record_load(out, file, err);
    if (status == WEFT_OK) status = check_model(engine, path, err);
    return status == WEFT_OK ? compare_facts(out, now, inexact, host, path, err) : status;
}

weft_status weft_checkpoint_check(const weft_engine *engine, const char *path, const weft_identities *identities,
                                  bool inexact, weft_error *err) {
    weft_identities now = *identities;
    weft_record record = {0};
    const weft_status status = open_record(&record, engine, path, &now, inexact, NULL, err);
    weft_record_clear(&record);
    return weft_process_group_agree(&engine->peers, status, err);
}

typedef struct restoring {
    weft_engine *engine;
    const char *path; /* of the checkpoint */
    bool inexact;
} restoring;

/* Masters are fp32; a state is as the run keeps it, or in plain numbers that can be rounded to that. dtype: 0 for
 * masters. */
static weft_status check_tensor(const weft_tensor *tensor, const weft_parameter *p, int32_t dtype, const char *path,
                                weft_error *err) {
    const int32_t kept = dtype == 0 ? WEFT_F32 : dtype;
    const weft_tensor_spec spec = weft_packed_state_spec(p, kept), plain = weft_packed_state_spec(p, WEFT_F32);
    const bool is_plain = weft_tensor_has_dims(tensor, plain.dims, plain.rank);
    const bool is_number = tensor->dtype == WEFT_F32 || tensor->dtype == WEFT_BF16 || tensor->dtype == WEFT_F16;
    if (tensor->dtype == spec.dtype && weft_tensor_has_dims(tensor, spec.dims, spec.rank)) return WEFT_OK;
    if (dtype != 0 && is_number && !weft_dtype_is_packed(kept) && is_plain) return WEFT_OK;
    if (dtype != 0 && (is_plain || tensor->dtype == WEFT_U8))
        return weft_error_set(
            err, WEFT_E_USER,
            "%s: has '%s' in another type than %s, the type in this run, and 8-bit blocks are not "
            "converted. Fix: restore [optimizer] states, or reset the state with --resume=inexact and "
            "without this file",
            path, p->name, weft_dtype_name(kept));
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: tensor '%s' has not the model's shape in %s: this checkpoint belongs to another model",
                          path, p->name, kept == WEFT_F32 ? "F32" : weft_dtype_name(kept));
}

/* Loads state/NAME.safetensors. With inexact, the file (is_there) or parameters in it may be missing and stay
 * unchanged. instead: what those that are missing do, for a warning. */
static weft_status restore_file(const restoring *self, const char *name, const weft_region *region, bool trainable_only,
                                const char *instead, bool *is_there, weft_error *err) {
    const weft_host *host = self->engine->plan.run->host;
    const weft_declared *declared = region->declared;
    const weft_tensor **tensors = NULL;
    char file_path[WEFT_PATH_BYTES], file_name[256];
    weft_safetensors *file = NULL;
    int32_t missing = 0;
    weft_status status = WEFT_OK;
    *is_there = true;
    (void)snprintf(file_name, sizeof file_name, "state/%s.safetensors", name);
    status = weft_path_join(file_path, self->path, file_name, err);
    if (status == WEFT_OK && self->inexact) status = weft_file_exists(is_there, file_path, err);
    if (status == WEFT_OK && !*is_there)
        weft_log(host, WEFT_LOG_WARN, "resume: %s does not exist: all of it %s", file_path, instead);
    if (status != WEFT_OK || !*is_there) return status;
    status = weft_safetensors_open(&file, file_path, err);
    tensors = weft_alloc(declared->n_parameters, sizeof(const weft_tensor *));
    for (int32_t i = 0; i < declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (trainable_only && !p->trainable) continue;
        tensors[i] = weft_safetensors_find(file, p->name);
        if (tensors[i] == NULL) missing += p->trainable;
        else status = check_tensor(tensors[i], p, region->dtype, file_path, err);
    }
    if (status == WEFT_OK) status = weft_weights_read(region, file, tensors, err);
    free(tensors);
    if (status == WEFT_OK && missing > 0 && !self->inexact)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: lacks %d of the parameters that are trained", file_path, missing);
    else if (status == WEFT_OK && missing > 0)
        weft_log(host, WEFT_LOG_WARN, "resume: %s lacks %d of the parameters that are trained now: they %s", file_path,
                 missing, instead);
    weft_safetensors_close(file);
    return status;
}

/* updates: the checkpoint's count. If a complete state starts at zero, which only `inexact` allows, the optimizer
 * counts from zero too. */
static weft_status restore_states(const restoring *self, uint64_t updates, weft_error *err) {
    weft_engine *engine = self->engine;
    bool is_there = true;
    weft_status status = WEFT_OK;
    engine->updates = updates;
    for (int64_t i = 0; i < engine->plan.n_states && status == WEFT_OK; i++) {
        const weft_region region = weft_engine_region(engine, WEFT_HOLD_STATES + (int)i);
        const int64_t words = engine->plan.holds[WEFT_HOLD_STATES + i]->bytes / WEFT_WORD;
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, region.ref, 0, words);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
        if (status == WEFT_OK)
            status = restore_file(self, engine->plan.states[i].name, &region, true, "start at zero", &is_there, err);
        if (!is_there) engine->updates = 0;
    }
    return status;
}

/* Restores this rank's shards. An adapter's base is loaded from its own directory. */
weft_status weft_checkpoint_restore(weft_engine *engine, const char *path, weft_identities *identities, bool inexact,
                                    weft_error *err) {
    const restoring self = {engine, path, inexact};
    const weft_plan *plan = &engine->plan;
    const weft_host *host = plan->run->host;
    const weft_region parameters = weft_engine_region(engine, WEFT_HOLD_PARAMETERS);
    const char *weights = weft_plan_saves_base(plan) ? path : plan->run->settings.model.path;
    weft_error why = WEFT_ERROR_INIT;
    weft_record record = {0};
    bool is_there = true;
    int32_t rounded = 0; /* frozen parameters in 16 bits: frozen now, or computed in another type */
    weft_status status = open_record(&record, engine, path, identities, inexact, host, err);
    if (status == WEFT_OK) status = weft_engine_take_choices(engine, &record.choices, &why);
    if (status == WEFT_E_UNSUPPORTED && inexact && why.text[0] != '\0') { /* another library version */
        weft_log(host, WEFT_LOG_WARN, "resume: kernel algorithms are selected again: %s", why.text);
        status = WEFT_OK;
    } else if (status != WEFT_OK && why.text[0] != '\0')
        (void)weft_error_set(err, status, "the device cannot use the checkpoint's kernel algorithms: %s", why.text);
    for (int32_t i = 0; i < plan->declared->n_parameters; i++)
        rounded += weft_dtype_bytes(plan->declared->parameters[i].dtype) == 2 &&
                   !plan->declared->parameters[i].trainable;
    if (status == WEFT_OK && inexact && rounded > 0)
        weft_log(host, WEFT_LOG_WARN,
                 "resume: %d frozen parameters are kept in %s as the base has them: wider values of them in %s are "
                 "rounded. To keep these, train them too, or use that checkpoint as [model] path",
                 (int)rounded, weft_dtype_name(plan->dtype), path);
    if (status == WEFT_OK) status = weft_weights_load(&parameters, weights, err);
    if (status == WEFT_OK) status = weft_adapter_load(&parameters, path, 0, err);
    if (status == WEFT_OK && record.masters != WEFT_MASTERS_NONE)
        status = restore_file(&self, "master", &parameters, false, "come from the rounded weights", &is_there, err);
    if (status == WEFT_OK) status = weft_engine_refresh_copy(engine, false, err);
    if (status == WEFT_OK) status = restore_states(&self, record.updates, err);
    if (status == WEFT_OK) {
        engine->scale = (weft_loss_scale){.scale = (float)plan->run->settings.train.loss_scale};
        if (record.scale.scale > 0.0f && weft_plan_scales(plan)) engine->scale = record.scale;
        engine->stored_dtype = record.stored_dtype;
    }
    weft_record_clear(&record);
    return weft_process_group_agree(&engine->peers, status, err);
}
