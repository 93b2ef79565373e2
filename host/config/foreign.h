/* host/config/foreign.h: maps setting names of other programs to Weft's names. */
#ifndef WEFT_HOST_CONFIG_FOREIGN_H
#define WEFT_HOST_CONFIG_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_foreign {
    const char *theirs;        /* "lora_r lora_rank"; "eval.steps" only applies in [eval] */
    const char *section, *key; /* "optimizer", "lr"; section "": key is a flag, "--resume", or "", no equivalent */
    const char *becomes;       /* Weft's value; "": the same; "?": different, see the note */
    const char *note;
} weft_foreign;

/* Finds the row of a name of n letters; `-` equals `_`, and case is ignored. section: of the setting; NULL: unknown.
 * Returns NULL without a match. */
const weft_foreign *weft_foreign_find(const char *section, const char *name, size_t n);

typedef struct weft_foreign_id {
    const char *kind, *theirs; /* theirs: names, separated by blanks */
    const char *id, *with;     /* with: additional settings; "": empty */
} weft_foreign_id;

/* Finds a foreign name of a plugin of the kind; NULL: no match. */
const weft_foreign_id *weft_foreign_id_find(const char *kind, const char *name);

/* Returns the only section that has a Weft key of that name, in the table or among the host's keys; NULL: missing or
 * ambiguous. */
const char *weft_foreign_home(const char *key, size_t n);

/* Formats "Weft has it as lr in [optimizer]", "Weft has it as base in [model] (nf4)", "Weft has it as the flag
 * --resume", "Weft has no such setting: ..." */
void weft_foreign_print(const weft_foreign *self, char *out, size_t size);

/* Formats the equivalent override of name=value: "model.base=nf4", "train.global_batch=VALUE (what VALUE is)". Returns
 * false without an equivalent. */
bool weft_foreign_override(const weft_foreign *self, const char *value, char *out, size_t size);

#endif
