/* host/tools/init/compose.h: a draft for a model and a data file that runs, and fits, as it is.
 *
 * The two are opened as a run opens them, so that what a run would refuse is refused here; what is chosen is chosen of
 * what they say of themselves, and what fits is found by planning (report/changes.h). */
#ifndef WEFT_HOST_TOOLS_INIT_COMPOSE_H
#define WEFT_HOST_TOOLS_INIT_COMPOSE_H

#include "report/available_memory.h"
#include "tools/init/draft.h"

typedef struct weft_init_wish {
    const char *model, *plugin; /* its directory, absolute; the family that config.json names */
    const char *adapter;        /* one that is continued, its directory, absolute; NULL: none */
    const char *stored;         /* [model] base that it was trained on; NULL: as the files have it */
    const char *tokens, *pad;   /* what its tokenizer has beside the model's: tokens, and a pad token; NULL: none */
    const char *data;           /* absolute */
    const char *out;            /* [run] out */
    bool fresh;                 /* begin from config.json alone */
    int64_t room;               /* bytes of a rank's device; 0: it is asked */
} weft_init_wish;

/* told: a line for people of what was seen and chosen. */
weft_status weft_init_compose(weft_draft *out, char *told, size_t size, const weft_init_wish *wish, weft_error *err);

#endif
