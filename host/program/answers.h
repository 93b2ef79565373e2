/* host/program/answers.h: what plugins have answered while a plan was made, a number for each question: two
 * processes that asked the same are to have the same of all. How they are noted and told apart stands in answered.h. */
#ifndef WEFT_HOST_PROGRAM_ANSWERS_H
#define WEFT_HOST_PROGRAM_ANSWERS_H

#include "model/declare.h"

/* In the order in which one follows from those before it. */
typedef enum weft_answer_kind {
    WEFT_ANSWER_MODEL = 0,                                         /* the parameters that the model declares */
    WEFT_ANSWER_ADAPTERS = 1,                                      /* and that each adapter adds */
    WEFT_ANSWER_UNITS = WEFT_ANSWER_ADAPTERS + WEFT_MOST_ADAPTERS, /* as the policy makes them */
    WEFT_ANSWER_SEGMENTS,                                          /* parameters that they read */
    WEFT_ANSWER_PLACES,                                            /* replicas, and where units and segments lie */
    WEFT_ANSWER_PROGRAMS,                                          /* of all ranks */
    WEFT_N_ANSWERS
} weft_answer_kind;

/* Plain bytes: ranks send them to one another. */
typedef struct weft_plan_answer {
    uint64_t number; /* 0: not asked */
    char said[120];  /* of it, for people: "model.layers.0, root"; "" where there is no more to say than the number */
} weft_plan_answer;

typedef struct weft_plan_answers {
    weft_plan_answer of[WEFT_N_ANSWERS];
} weft_plan_answers;

#endif
