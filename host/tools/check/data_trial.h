/* host/tools/check/data_trial.h: test bench for data plugins: instances, micro-batches and rules. */
#ifndef WEFT_HOST_TOOLS_CHECK_DATA_TRIAL_H
#define WEFT_HOST_TOOLS_CHECK_DATA_TRIAL_H

#include "tools/check/rule.h"

#include <weft/data.h>

/* Job for data plugins under test: ids below 256 are bytes, 256 is BOS, 257 EOS. */

enum { WEFT_BYTES_VOCABULARY = 258, WEFT_BYTES_CONTEXT = 1 << 16 };

const weft_data_job *weft_bytes_job(void);
const weft_data_job *weft_bytes_job_of_another_seed(void);

typedef struct weft_data_instance {
    const weft_data_plugin *table;
    weft_data *made;
    weft_data_info info;
    weft_split_info splits[3];
    bool refused; /* its `create` failed */
} weft_data_instance;

/* WEFT_E_UNSUPPORTED: the plugin needs another file. Close it also after a failure. */
weft_status weft_data_open(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                           weft_error *err);
weft_status weft_data_open_for(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                               const weft_data_job *job, weft_error *err);
void weft_data_close(weft_data_instance *self);

/* Returns the maximum of its lengths. */
int32_t weft_data_longest(const weft_data_instance *self);

/* Allocates buffers for the largest requested micro-batch. */
void weft_data_micro_batch_make(weft_micro_batch *micro_batch, const weft_data_instance *self);
void weft_data_micro_batch_free(weft_micro_batch *micro_batch);

/* Fetches the micro-batch of a request and validates it as a run does. */
weft_status weft_data_take(weft_micro_batch *micro_batch, const weft_data_instance *self,
                           const weft_micro_batch_request *request, weft_error *err);

enum { WEFT_DATA_REQUESTS = 60 };

/* Draws a request: from each split, and far beyond the first epoch. */
weft_micro_batch_request weft_data_draw_request(const weft_data_instance *self, uint32_t number);

/* Compares sequence r of one micro-batch to sequence q of another. The shorter one counts as padded. */
bool weft_data_same_row(const weft_micro_batch *a, int32_t r, const weft_micro_batch *b, int32_t q);
bool weft_data_same_micro_batch(const weft_micro_batch *a, const weft_micro_batch *b);

/* Two instances of the same data, with one micro-batch each. */
typedef struct weft_data_desk {
    weft_data_instance self, other;
    weft_micro_batch one, two;
} weft_data_desk;

weft_status weft_data_desk_open(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err);
void weft_data_desk_close(weft_data_desk *d);

/* True if both instances have the same fingerprint and counts. */
bool weft_data_desk_same(const weft_data_desk *d);

typedef weft_status (*weft_on_request)(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err);

weft_status weft_data_each_request(const weft_plugin_under_test *tested, weft_on_request holds, weft_error *err);
weft_status weft_data_each_request_of(weft_data_desk *d, weft_on_request holds, weft_error *err);

/* The rule of data_shared.c. */
weft_status weft_data_shares_its_rows(weft_plugin_under_test *tested, weft_error *err);

#endif
