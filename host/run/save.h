/* host/run/save.h: the description of a save: which files, from which regions, among which ranks.
 *
 * A synchronous save reads the engine's regions and uses its process group. An asynchronous one (async_checkpoint.h)
 * reads copies and uses a relay: the same code writes the same bytes. weft_saving_run uses the device through the
 * regions only, and no plugin. */
#ifndef WEFT_HOST_RUN_SAVE_H
#define WEFT_HOST_RUN_SAVE_H

#include "run/checkpoint.h"

/* The content of state/master.safetensors. */
typedef enum weft_masters { WEFT_MASTERS_NONE = 0, WEFT_MASTERS_TRAINABLE = 1, WEFT_MASTERS_ALL = 2 } weft_masters;

typedef struct weft_record {
    weft_checkpoint_state state;
    weft_identities identities; /* of the run that saved */
    uint64_t updates;           /* of the optimizer (weft_engine) */
    weft_loss_scale scale;      /* in fp16; its scale is 0 in other runs */
    int32_t stored_dtype;       /* weft_dtype of the base's files (weft_engine) */
    weft_masters masters;
    weft_choices choices; /* of devices; none in old checkpoints */
} weft_record;

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err);

/* weft_record_clear afterwards, also on failure. */
weft_status weft_record_load(weft_record *out, const char *path, weft_error *err);

void weft_record_clear(weft_record *record); /* of one that was loaded */

typedef struct weft_saving {
    const weft_engine *engine; /* for its plan and configuration, which are constant */
    const weft_process_group *peers;
    weft_region parameters, states[WEFT_MAX_STATES];
    const weft_text_files *files;                                   /* of the tokenizer; NULL: none */
    int32_t dtype;                                                  /* of the weights */
    char parent[WEFT_PATH_BYTES], name[WEFT_PATH_BYTES];            /* of the final directory */
    bool is_checkpoint;                                             /* with state/ and manifest, and a record */
    weft_record record;                                             /* its pointers are borrowed */
    weft_status (*before_manifest)(void *context, weft_error *err); /* (optional) on rank 0 */
    void *context;                                                  /* of it */

    const char *directory; /* the temporary one */
    json_t *roots;         /* on rank 0: the roots of tensors, for the manifest */
} weft_saving;

/* Describes a synchronous save of the engine; files may be NULL. [main] */
weft_status weft_saving_open(weft_saving *out, const weft_engine *engine, const char *parent, const char *name,
                             const weft_text_files *files, weft_error *err);
/* Makes it a checkpoint of this state; the identities' content must outlive it. */
void weft_saving_note(weft_saving *self, const weft_checkpoint_state *state, const weft_identities *identities);

/* Writes all files. [collective] */
weft_status weft_saving_run(weft_saving *self, weft_error *err);

#endif
