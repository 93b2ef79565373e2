/* host/train/trainer.h: a complete training run: steps, evaluations, checkpoints, and their output. */
#ifndef WEFT_HOST_TRAIN_TRAINER_H
#define WEFT_HOST_TRAIN_TRAINER_H

#include "train/tables.h"
#include "run/session.h"
#include "train/output.h"

typedef struct weft_train_options {
    weft_output_mode mode;
    bool inexact; /* resume even if the recorded facts differ */
    bool quiet;
    bool verbose;    /* print all details before the first loss and after the last */
    uint32_t tables; /* mask of weft_shown */
    int64_t values;  /* steps with printed values; one rank only */
    int64_t room;    /* bytes of a rank's device from the user; 0: query the device */
    bool any_room;   /* start even if the plan does not fit */
} weft_train_options;

/* Trains to the end, or until a signal: then saves the state and returns WEFT_E_STOPPED. */
weft_status weft_train(const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_train_options *options, weft_error *err);

#endif
