/* plugins/adapter/lora/lora.h: declarations shared by the files of lora. */
#ifndef WEFT_LORA_H
#define WEFT_LORA_H

#include "../common/targets.h"
#include "patterns.h"

/* clang-format off */
#define LORA_KEYS(K)                                                                                                   \
    K(I64, r, "auto", "[1,64Ki] | auto", "", WEFT_SAME, "Rank of the update; auto: 8, or that of from.")               \
    K(F64, alpha, "auto", "(0,inf) | auto", "", WEFT_SAME,                                                             \
      "The update is scaled by alpha / r; auto: 8, or that of from.")                                                  \
    K(ENUM, rank_stabilised, "auto", "auto,yes,no", "", WEFT_SAME,                                                     \
      "yes: scaled by alpha / sqrt(r) (arXiv 2312.03732); auto: no, or as from.")                                      \
    K(F64, dropout, "auto", "[0,1) | auto", "", WEFT_SAME,                                                             \
      "Dropout on the input of A, in training; auto: 0, or the value of from.")                                        \
    K(ENUM, dora, "auto", "auto,yes,no", "", WEFT_SAME,                                                                \
      "yes: train the norms of the updated rows separately (arXiv 2402.09353); auto: no, or the value of from.")       \
    K(LIST, rank_pattern, "auto", "", "", WEFT_SAME,                                                                   \
      "Ranks of single modules, as q_proj:16, layers.0.self_attn.v_proj:4: names or patterns with *, the first "       \
      "match counts; none; auto: none, or the value of from. Other modules have r.")                                   \
    K(LIST, alpha_pattern, "auto", "", "", WEFT_SAME,                                                                  \
      "Alphas of single modules, in the same form; none; auto: none, or the value of from. Other modules have alpha.") \
    K(LIST, targets, "auto", "", "", WEFT_SAME,                                                                        \
      "Modules: names, patterns with *, or all-linear; auto: all-linear, or those of from.")                           \
    K(STR, regex, "", "", "", WEFT_SAME, "Instead of targets: an expression that must match the complete path.")       \
    K(LIST, exclude, "auto", "", "", WEFT_SAME,                                                                        \
      "Modules to exclude from targets or regex: names, patterns with *; none; auto: none, or the value of from.")     \
    K(LIST, layers, "auto", "", "", WEFT_SAME,                                                                         \
      "Blocks: all, first:N, last:N, or numbers from 0; auto: all, or those of from.")                                 \
    K(ENUM, init, "kaiming", "kaiming,gaussian", "", WEFT_SAME,                                                        \
      "How A starts, as PEFT does it: uniform to 1 / sqrt(in), or normal with deviation 1 / r. B starts at zero.")
/* clang-format on */
WEFT_KEYS_STRUCT(lora_config, LORA_KEYS)

enum { LORA_AUTO = 0, LORA_YES = 1 }; /* rank_stabilised */
enum { LORA_KAIMING = 0 };

/* The two matrices at one site; NULL: not adapted. A slice shares the A of its complete weight and has its own rows of
 * B. */
typedef struct lora_part {
    weft_weight *a, *b;
    weft_weight *magnitude; /* with DoRA, at a linear */
    int64_t r;
    double scale; /* s */
} lora_part;

/* Module selection, and ranks and alphas of single modules; all owned. */
typedef struct lora_modules {
    char *names, *regex, *layers;  /* as in targets.h */
    char *layers_pattern;          /* from a file: names of the list of blocks, "layers"; "": any. NULL: keys do not set
                                      it */
    char *exclude, *exclude_regex; /* exclusions; "": empty */
    patterns ranks, alphas;        /* exceptions to the common r and alpha */
    int says_names, says_exclude;  /* continued adapter: true if keys set them; else the file's value is used */
    int says_layers, says_ranks, says_alphas;
} lora_modules;

struct weft_adapter {
    int64_t r;
    double alpha, dropout;
    int stabilised, gaussian, dora;
    char *source;           /* owned; adapter_config.json of a continued adapter; NULL: a new one */
    lora_modules own;       /* selection of the adapter */
    lora_modules asked;     /* selection by keys, for a continued adapter */
    lora_part *parts;       /* [n_sites] */
    weft_site *sites;       /* [n_sites] sites for a merge */
    double *ranks, *alphas; /* [n_sites] for chosen sites */
    uint32_t n_sites;
    char *config_json; /* owned */
};

/* Reads rank, scale and modules from an adapter_config.json. */
weft_status lora_read(weft_adapter *self, const weft_adapter_source *source, weft_error *err);
/* Writes an adapter_config.json; the caller frees it. NULL: no memory. */
char *lora_write(const weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen);

#endif
