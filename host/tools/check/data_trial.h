/* host/tools/check/data_trial.h: data that are tried: instances, the micro-batches that they give, and those of
 * which their rules speak. */
#ifndef WEFT_HOST_TOOLS_CHECK_DATA_TRIAL_H
#define WEFT_HOST_TOOLS_CHECK_DATA_TRIAL_H

#include "tools/check/bytes_job.h"
#include "tools/check/rule.h"

typedef struct weft_data_instance {
    const weft_data_plugin *table;
    weft_data *made;
    weft_data_info info;
    weft_split_info splits[3];
    bool refused; /* its create has failed */
} weft_data_instance;

/* To be closed, also after a failure. WEFT_E_UNSUPPORTED: another file is what it needs. */
weft_status weft_data_open(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                           weft_error *err);
weft_status weft_data_open_for(weft_data_instance *self, const weft_plugin_under_test *tested, uint8_t poison,
                               const weft_data_job *job, weft_error *err);
void weft_data_close(weft_data_instance *self);

/* Of its lengths. */
int32_t weft_data_longest(const weft_data_instance *self);

/* Room for the largest micro-batch that is asked for. To be freed, also after a failure. */
weft_status weft_data_micro_batch_make(weft_micro_batch *micro_batch, const weft_data_instance *self, weft_error *err);
void weft_data_micro_batch_free(weft_micro_batch *micro_batch);

/* The micro-batch of a request, judged as in a run. */
weft_status weft_data_take(weft_micro_batch *micro_batch, const weft_data_instance *self,
                           const weft_micro_batch_request *request, weft_error *err);

enum { WEFT_DATA_REQUESTS = 60 };

/* Of each split, and far behind the first epoch. */
weft_micro_batch_request weft_data_draw_request(const weft_data_instance *self, uint32_t number);

/* Row r of a micro-batch against row q of another; the shorter one is padded. */
bool weft_data_same_row(const weft_micro_batch *a, int32_t r, const weft_micro_batch *b, int32_t q);
bool weft_data_same_micro_batch(const weft_micro_batch *a, const weft_micro_batch *b);

/* Two instances of the same, and a micro-batch of each. */
typedef struct weft_data_desk {
    weft_data_instance self, other;
    weft_micro_batch one, two;
} weft_data_desk;

weft_status weft_data_desk_open(weft_data_desk *d, const weft_plugin_under_test *tested, weft_error *err);
void weft_data_desk_close(weft_data_desk *d);

typedef weft_status (*weft_on_request)(weft_data_desk *d, const weft_micro_batch_request *request, weft_error *err);

weft_status weft_data_each_request(const weft_plugin_under_test *tested, weft_on_request holds, weft_error *err);
weft_status weft_data_each_request_of(weft_data_desk *d, weft_on_request holds, weft_error *err);

/* Where the keys have the file that is learned from; NULL: no such key. */
const char **weft_data_path_in(const weft_plugin_under_test *tested, void *config);

/* ---- rules ---- */

weft_status weft_data_threads_alike(weft_plugin_under_test *tested, weft_error *err);
weft_status weft_data_counts_hold(weft_plugin_under_test *tested, weft_error *err);
weft_status weft_data_ends_in_padding(weft_plugin_under_test *tested, weft_error *err);
weft_status weft_data_asks_for_unseen(weft_plugin_under_test *tested, weft_error *err);
weft_status weft_data_refuses_wrong_files(weft_plugin_under_test *tested, weft_error *err);
weft_status weft_data_tells_rows_apart(weft_data_desk *d, weft_plugin_under_test *tested, weft_error *err);

#endif
