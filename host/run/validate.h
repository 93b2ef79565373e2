/* host/run/validate.h: validation of the output of data plugins and optimizers before it is used. An invalid
 * micro-batch would silently cause a wrong loss, or access to invalid memory. */
#ifndef WEFT_HOST_RUN_VALIDATE_H
#define WEFT_HOST_RUN_VALIDATE_H

#include "program/plan.h"

#include <weft/data.h>
#include <weft/optimizer.h>

/* Requires lengths that increase from at least 1 to at most max_context, and targets that fit each split's sequences.
 * training: the first split must have sequences. infos: by weft_split. [any-thread] */
weft_status weft_data_validate(const weft_data_info *info, weft_split_info *const infos[3], int64_t max_context,
                               bool training, weft_error *err);

/* A micro-batch's arrays are filled with this byte before the plugin gets them: as an id, a start or a position it
 * is -1, as a weight NaN. So omitted values are invalid. */
#define WEFT_MICRO_BATCH_POISON 0xFF

typedef struct weft_micro_batch_bounds {
    int64_t vocabulary; /* ids are below */
    int64_t positions;  /* positions are below */
    const int32_t *lengths;
    int32_t n_lengths;
} weft_micro_batch_bounds;

weft_micro_batch_bounds weft_micro_batch_bounds_of(const weft_plan *plan);
/* Requires the requested number of sequences, a declared length, and targets that fit. [any-thread] */
weft_status weft_micro_batch_validate_shape(const weft_micro_batch *micro_batch,
                                            const weft_micro_batch_request *request,
                                            const weft_micro_batch_bounds *bounds, weft_error *err);
/* requested: the micro-batch before the call. Validates arrays, shape, and every position: ids and targets of the
 * vocabulary, weights that are finite and not negative, with n_targets of them not 0, starts that are their own
 * position or the start of the previous one, positions within the model's tables. err has split, sequence and
 * position. [any-thread] */
weft_status weft_micro_batch_validate(const weft_micro_batch *micro_batch, const weft_micro_batch *requested,
                                      const weft_micro_batch_request *request, const weft_micro_batch_bounds *bounds,
                                      weft_error *err);

/* Fetches a micro-batch into `memory`, parts of `part` bytes for the arrays, and validates it. shape: what it must
 * agree with; NULL: nothing. */
weft_status weft_micro_batch_fetch(weft_micro_batch *out, void *memory, int64_t part, const weft_data_plugin *plugin,
                                   weft_data *data, const weft_micro_batch_request *request, const weft_plan *plan,
                                   const weft_micro_batch *shape, weft_error *err);

/* An optimizer's declaration: its states, which become memory and files of a checkpoint, the size of its struct for
 * each step, and its update. */
typedef struct weft_optimizer_facts {
    weft_state_slot states[WEFT_MAX_STATES]; /* with the host's struct size; the optimizer owns the names */
    int64_t n_states;
    int64_t hp_bytes;
} weft_optimizer_facts;

/* Fills out if all of it is valid; err has the optimizer's id. [main] */
weft_status weft_optimizer_validate(weft_optimizer_facts *out, const weft_optimizer_plugin *plugin,
                                    const weft_optimizer *optimizer, const char *id, weft_error *err);

#endif
