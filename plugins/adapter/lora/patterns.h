/* plugins/adapter/lora/patterns.h: ranks and alphas of single modules, rank_pattern and alpha_pattern. An entry is a
 * module and a number; the first entry that matches a module is used, as in PEFT. */
#ifndef WEFT_LORA_PATTERNS_H
#define WEFT_LORA_PATTERNS_H

#include <jansson.h>
#include <weft/adapter.h>

typedef enum pattern_sort { PATTERN_RANK, PATTERN_ALPHA } pattern_sort;

typedef struct pattern {
    char *module; /* owned; a name as in targets.h, or from a file an expression in PEFT's syntax */
    double value;
} pattern;

typedef struct patterns {
    pattern_sort sort;
    const char *source; /* the adapter_config.json of the entries, which must outlive them; NULL: from a key */
    pattern *entries;   /* owned */
    size_t n;
} patterns;

/* text: "q_proj:16,layers.0.*:4", in the host's list format; "auto", "none" and "" have no entries. */
weft_status patterns_of_key(patterns *self, pattern_sort sort, const char *text, weft_error *err);
/* object: the file's value, in its order; NULL and null have no entries. */
weft_status patterns_of_file(patterns *self, pattern_sort sort, json_t *object, const char *source, weft_error *err);
void patterns_free(patterns *self);

/* Sets values[n_sites] for chosen sites that match an entry. An entry of a key fails without a match, and also if
 * earlier entries cover all its matches. An entry of a file fails if it matches no module of the model. */
weft_status patterns_give(const patterns *self, const weft_adapter_job *job, const uint8_t *chosen, double *values,
                          weft_error *err);

/* Returns the values of chosen sites that differ from `common`, in PEFT's format: by name if all sites of the name have
 * the same value, else by path. So no module matches two entries, and their order does not matter. NULL: no memory. */
json_t *patterns_write(pattern_sort sort, const weft_adapter_job *job, const uint8_t *chosen, const double *values,
                       double common);

#endif
