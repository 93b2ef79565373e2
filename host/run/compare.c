/* host/run/compare.c: the facts of a checkpoint against those of now. */
#include "run/run_record.h"

#include <stdlib.h>

static const weft_identity *find_identity(const weft_identities *identities, const char *name) {
    for (int32_t i = 0; i < identities->n; i++)
        if (strcmp(identities->items[i].name, name) == 0) return &identities->items[i];
    return NULL;
}

/* A fact with its value in the checkpoint and now; one of the two may be missing. */
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

static weft_status reserve_identities(weft_identities *self, int32_t more, weft_error *err) {
    weft_change *changes = realloc(self->changes, (size_t)(self->n_changes + more + 1) * sizeof *changes);
    if (changes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the changes of the run");
    self->changes = changes;
    return WEFT_OK;
}

static void keep_change(weft_identities *now, const difference *d, uint64_t step) {
    weft_change *change = &now->changes[now->n_changes++];
    memset(change, 0, sizeof *change);
    change->step = step;
    (void)snprintf(change->name, sizeof change->name, "%s", name_of(d));
    (void)snprintf(change->from, sizeof change->from, "%s", value_of(d->before));
    (void)snprintf(change->to, sizeof change->to, "%s", value_of(d->now));
}

weft_status weft_record_judge(const weft_record *record, const weft_identities *now, const char *path,
                              weft_error *err) {
    const weft_identities *before = &record->identities;
    difference *list = calloc((size_t)(before->n + now->n) + 1, sizeof *list);
    weft_status status = list == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory to compare facts") : WEFT_OK;
    if (status == WEFT_OK) status = refuse_differences(list, list_differences(list, before, now), path, err);
    free(list);
    return status;
}

weft_status weft_record_compare(const weft_record *record, weft_identities *now, bool inexact, const weft_host *host,
                                const char *path, weft_error *err) {
    const weft_identities *before = &record->identities;
    difference *list = calloc((size_t)(before->n + now->n) + 1, sizeof *list);
    const int32_t n = list == NULL ? 0 : list_differences(list, before, now);
    weft_status status = list == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory to compare facts") : WEFT_OK;
    if (status == WEFT_OK && !inexact) status = refuse_differences(list, n, path, err);
    if (status == WEFT_OK) status = reserve_identities(now, before->n_changes + n, err);
    for (int32_t i = 0; status == WEFT_OK && i < before->n_changes; i++)
        now->changes[now->n_changes++] = before->changes[i];
    for (int32_t i = 0; status == WEFT_OK && i < n; i++) {
        weft_log(host, is_noted(&list[i]) ? WEFT_LOG_INFO : WEFT_LOG_WARN, "resume: %s is %s, was %s",
                 name_of(&list[i]), value_of(list[i].now), value_of(list[i].before));
        keep_change(now, &list[i], record->state.step);
    }
    free(list);
    return status;
}
