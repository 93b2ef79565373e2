/* plugins/adapter/lora/patterns.h: ranks and alphas of single modules, rank_pattern and alpha_pattern: entries of a
 * module and a number, of which the first that means a module holds, as in PEFT. */
#ifndef WEFT_LORA_PATTERNS_H
#define WEFT_LORA_PATTERNS_H

#include <jansson.h>
#include <weft/adapter.h>

typedef enum pattern_sort { PATTERN_RANK, PATTERN_ALPHA } pattern_sort;

typedef struct pattern {
    char *module; /* owned; as `targets` names them, or, of a file, an expression as PEFT reads it */
    double value;
} pattern;

typedef struct patterns {
    pattern_sort sort;
    const char *source; /* the adapter_config.json that has them, which outlives them; NULL: a key does */
    pattern *entries;   /* owned */
    size_t n;
} patterns;

/* text: "q_proj:16,layers.0.*:4", as the host lays out a list; "auto", "none" and "": no entry. */
weft_status patterns_of_key(patterns *self, pattern_sort sort, const char *text, weft_error *err);
/* object: what the file has by the name, in its order; NULL and null: no entry. */
weft_status patterns_of_file(patterns *self, pattern_sort sort, json_t *object, const char *source, weft_error *err);
void patterns_free(patterns *self);

/* values: [n_sites], set where an entry means a chosen site. An entry of a key that means none is refused, and so is
 * one that means those alone that have their number by entries before it. An entry of a file is refused where it
 * matches no module of the model. */
weft_status patterns_give(const patterns *self, const weft_adapter_job *job, const uint8_t *chosen, double *values,
                          weft_error *err);

/* The chosen sites whose value is another than `common`, as PEFT reads it: by their names where all of a name have the
 * same one, else by their paths, so that no module is meant twice and the order says nothing. NULL: no memory. */
json_t *patterns_write(pattern_sort sort, const weft_adapter_job *job, const uint8_t *chosen, const double *values,
                       double common);

#endif
