/* host/config/foreign.h: names that other programs have for what Weft has, too. */
#ifndef WEFT_HOST_CONFIG_FOREIGN_H
#define WEFT_HOST_CONFIG_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_foreign {
    const char *theirs;        /* "learning_rate"; "eval.steps" counts in [eval] alone */
    const char *section, *key; /* "optimizer", "lr"; section "": key is a flag, "--resume", or "", there is nothing */
    const char *becomes;       /* Weft's value; "": as theirs; "?": another, which the note explains */
    const char *note;
} weft_foreign;

/* The name's row, n letters; `-` and `_` are the same, and so are large and small letters. section: where it was
 * written; NULL: nowhere. NULL: no row has it. */
const weft_foreign *weft_foreign_find(const char *section, const char *name, size_t n);

typedef struct weft_foreign_id {
    const char *kind, *theirs;
    const char *id, *with; /* with: what goes with it; "": nothing */
} weft_foreign_id;

/* What somebody calls a plugin of the kind; NULL: no row has it. */
const weft_foreign_id *weft_foreign_id_find(const char *kind, const char *name);

/* The only section that has a key of Weft's of that name, in the table or among the host's; NULL: none or several. */
const char *weft_foreign_home(const char *key, size_t n);

/* "Weft has it as lr in [optimizer]", "Weft has it as base in [model] (nf4)", "Weft has it as the flag --resume", "Weft
 * has no such setting: ..." */
void weft_foreign_print(const weft_foreign *self, char *out, size_t size);

/* The override that stands for name=value: "model.base=nf4", "train.global_batch=VALUE (what VALUE is)". False: there
 * is none. */
bool weft_foreign_override(const weft_foreign *self, const char *value, char *out, size_t size);

#endif
