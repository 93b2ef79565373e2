/* host/run/saving.h: one save, as data: what is written, from which regions, among which ranks.
 *
 * A save in place reads the engine's own regions and speaks with its peers. One beside training (async_checkpoint.h)
 * reads copies of them and speaks through a relay: it is the same code, and writes the same bytes. Running it
 * touches nothing of a device but by the regions, and nothing of a plugin. */
#ifndef WEFT_HOST_RUN_SAVING_H
#define WEFT_HOST_RUN_SAVING_H

#include "base/join.h"
#include "run/run_record.h"
#include "run/text_files.h"

#include <jansson.h>

typedef struct weft_saving {
    const weft_engine *engine; /* for its plan and configuration, which a run does not change */
    const weft_process_group *peers;
    weft_region parameters, states[WEFT_MAX_STATES];
    const weft_text_files *files; /* of the tokenizer: those of the run, or listed_files */
    weft_text_files listed_files;
    int32_t dtype;                                                  /* of the weights */
    char parent[WEFT_PATH_BYTES], name[WEFT_PATH_BYTES];            /* of the directory that will be there */
    bool is_checkpoint;                                             /* with state/ and manifest, and a record */
    weft_record record;                                             /* borrows what it points to */
    weft_status (*before_manifest)(void *context, weft_error *err); /* (optional) on rank 0: what must be on the disk */
    void *context;                                                  /* of it */

    const char *directory; /* while it is written */
    json_t *roots;         /* the same, on rank 0: what the manifest says of tensors */
} weft_saving;

/* From the engine itself, of now; text may be NULL. To be closed also after a failure. [main] */
weft_status weft_saving_open(weft_saving *out, const weft_engine *engine, const char *parent, const char *name,
                             const weft_text *text, weft_error *err);
void weft_saving_close(weft_saving *self);
/* It is a checkpoint, of this state; what the identities point to outlives it. */
void weft_saving_note(weft_saving *self, const weft_checkpoint_state *state, const weft_identities *identities);

/* Writes it all. A failure says what could not be saved. [collective] */
weft_status weft_saving_run(weft_saving *self, weft_error *err);

#endif
