/* host/program/paths.c: see paths.h. */
#include "program/paths.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "base/units.h"
#include "plugin/enter.h"

#include <stdlib.h>
#include <string.h>

int64_t weft_save_place_parameters(const weft_plan *plan) {
    const weft_hold *hold = plan->holds[WEFT_HOLD_PARAMETERS];
    const int32_t trained = plan->layout->n_trainable_groups; /* they are the first groups */
    return plan->visible && trained < hold->n_groups ? hold->spans[trained].at : hold->bytes;
}

int64_t weft_save_place_bytes(const weft_plan *plan) {
    int64_t bytes = weft_buffer_part(weft_save_place_parameters(plan));
    for (int64_t i = 0; i < plan->n_states; i++) bytes += weft_buffer_part(plan->holds[WEFT_HOLD_STATES + i]->bytes);
    return bytes;
}

/* Assumes that all ranks of a machine need as much memory as this one. */
static bool has_memory(const weft_plan *plan) {
    const int64_t ranks = plan->nodes > 0 ? (plan->world + plan->nodes - 1) / plan->nodes : plan->world;
    weft_machine_memory machine;
    weft_machine_memory_read(&machine, "");
    return machine.total == 0 || weft_save_place_bytes(plan) <= machine.total / 2 / weft_larger(ranks, 1);
}

void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    const int64_t asked = plan->run->settings.checkpoint.async;
    plan->visible = kernels->host_view != NULL;
    plan->saves = WEFT_SAVES_NONE;
    if (!plan->spec.saves) return;
    WEFT_PLUGIN_NOTIFY(kernels, info, device, &info);
    if (asked == WEFT_CHOICE_NO) plan->saves = WEFT_SAVES_IN_PLACE;
    else if (asked == WEFT_CHOICE_YES) plan->saves = WEFT_SAVES_BESIDE;
    else if ((info.flags & WEFT_DEVICE_SHARES_MACHINE) != 0) plan->saves = WEFT_SAVES_SHARED;
    else plan->saves = has_memory(plan) ? WEFT_SAVES_BESIDE : WEFT_SAVES_NO_ROOM;
}

static struct {
    int32_t mode, rank;
    FILE *refused;
} wanted = {-1, -1, NULL};

void weft_show_want(int32_t mode, int32_t rank, FILE *refused) {
    wanted.mode = mode;
    wanted.rank = rank;
    wanted.refused = refused;
}

int32_t weft_show_rank(int32_t mode) {
    return wanted.mode == mode ? wanted.rank : -1;
}

void weft_show_refused(const weft_program *program, const weft_job_spec *job, int32_t instruction) {
    if (wanted.refused == NULL || program == NULL) return;
    (void)fprintf(wanted.refused, "program of rank %d in %s, with the rejected instruction highlighted\n",
                  (int)program->rank, weft_mode_name(program->mode));
    weft_program_print(program, job, instruction, wanted.refused);
}

/* Returns the length of a listed path without a weight, as ":0.5". */
static size_t path_length(const char *name, size_t n) {
    const char *colon = memrchr(name, ':', n);
    char *end = NULL;
    if (colon == NULL || colon + 1 == name + n) return n;
    (void)strtod(colon + 1, &end);
    return end == name + n ? (size_t)(colon - name) : n;
}

static weft_status each_listed(const char *list, const char *key, weft_path_visit *visit, void *context,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    while (*list != '\0' && status == WEFT_OK) {
        const size_t n = strcspn(list, ",");
        char *path = weft_text_of("%.*s", (int)path_length(list, n), list);
        status = visit(context, key, path, err);
        free(path);
        list += n + (list[n] == ',');
    }
    return status;
}

weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err) {
    const weft_plugin *plugin = part->loaded == NULL ? NULL : part->loaded->plugin;
    weft_status status = WEFT_OK;
    for (uint64_t k = 0; plugin != NULL && k < plugin->n_keys && status == WEFT_OK; k++) {
        const weft_key *key = (const weft_key *)(const void *)((const char *)plugin->keys + k * plugin->key_stride);
        const bool is_list = (key->flags & WEFT_PATHS) != 0;
        const char *value = NULL;
        if ((key->type != WEFT_KEY_PATH && !is_list) || (key->flags & WEFT_REMOVED) != 0) continue;
        memcpy(&value, (const char *)part->config + key->offset, sizeof value);
        if (is_list) status = each_listed(value, key->name, visit, context, err);
        else if (value != NULL && value[0] == '/') status = visit(context, key->name, value, err);
    }
    return status;
}
