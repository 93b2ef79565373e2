/* host/program/answers.h: hashes of the plugin results from which a plan was made. Two processes with the same
 * inputs must have identical hashes. plugin_answers.h records and compares them. */
#ifndef WEFT_HOST_PROGRAM_ANSWERS_H
#define WEFT_HOST_PROGRAM_ANSWERS_H

#include "model/declare.h"

/* Each entry depends only on earlier ones. */
typedef enum weft_answer_kind {
    WEFT_ANSWER_MODEL = 0,                                         /* the parameters that the model declares */
    WEFT_ANSWER_ADAPTERS = 1,                                      /* parameters that each adapter adds */
    WEFT_ANSWER_UNITS = WEFT_ANSWER_ADAPTERS + WEFT_MOST_ADAPTERS, /* units of the policy */
    WEFT_ANSWER_SEGMENTS,                                          /* parameters that segments read */
    WEFT_ANSWER_PLACES,                                            /* replicas, unit placements and segment owners */
    WEFT_ANSWER_PROGRAMS,                                          /* of all ranks */
    WEFT_N_ANSWERS
} weft_answer_kind;

/* Plain bytes: ranks exchange them. */
typedef struct weft_plan_answer {
    uint64_t number; /* 0: not queried */
    char said[120];  /* description: "model.layers.0, root"; "" if the number is enough */
} weft_plan_answer;

typedef struct weft_plan_answers {
    weft_plan_answer of[WEFT_N_ANSWERS];
} weft_plan_answers;

#endif
