/* host/train/trainer.h: a whole run: steps, evaluations, checkpoints, and what is said about them. */
#ifndef WEFT_HOST_TRAIN_TRAINER_H
#define WEFT_HOST_TRAIN_TRAINER_H

#include "report/tables.h"
#include "run/session.h"
#include "train/output.h"

typedef struct weft_train_options {
    weft_output_mode mode;
    bool inexact; /* resume although facts differ */
    bool quiet;
    bool verbose;    /* all that can be said of the run before its first loss and after its last */
    uint32_t tables; /* mask of weft_shown */
    int64_t values;  /* steps whose values are printed; one rank alone */
    int64_t room;    /* bytes of a rank's device, as somebody says; 0: it is asked */
    bool any_room;   /* start although it does not fit */
} weft_train_options;

/* Trains to the end, or until a signal: then what was done is saved and WEFT_E_STOPPED returned. */
weft_status weft_train(const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_train_options *options, weft_error *err);

#endif
