/* tokenizer.h: the parts of a tokenizer, and the scratch memory of its calls.
 *
 * A tokenizer is immutable. An encoding writes only to a scratch, which it takes from a pool and returns. So threads
 * never share one, and its cache of merged words is reused for later texts. */
#ifndef BPE_TOKENIZER_H
#define BPE_TOKENIZER_H

#include "../common/chat.h"
#include "added.h"
#include "decode.h"
#include "model.h"
#include "special.h"
#include "split.h"

#include <pthread.h>
#include <weft/tokenizer.h>

#define BPE_MOST_FILES 8

typedef struct bpe_scratch bpe_scratch;
struct bpe_scratch {
    bpe_scratch *next; /* in the pool */
    bpe_workspace work;
    bpe_matcher matcher;
    bpe_list normal[2];
    bpe_list split[BPE_MOST_STEPS];
    bpe_texts texts[2];
};

/* A token added by weft_tokenizer_add. */
typedef struct bpe_new_token {
    bpe_text name;
    int32_t id;
    bool is_pad;
} bpe_new_token;

struct weft_tokenizer {
    const weft_host *host;
    bpe_model model;
    bpe_normal normal;
    bpe_split split;
    bpe_added added;
    bpe_decode decode;
    bpe_special special;
    chat_templates chat;
    int32_t n_ids;        /* highest id + 1 */
    int32_t *added_by_id; /* index of the added token with this id, or -1 */
    const char *files[BPE_MOST_FILES + 1];
    bpe_text directory;
    bpe_new_token *new_tokens; /* [n_new] tokens of weft_tokenizer_add (tokens.c); NULL: absent */
    uint32_t n_new;
    pthread_mutex_t lock; /* protects the pool */
    bool has_lock;
    bpe_scratch *pool;
};

bpe_scratch *bpe_scratch_take(const weft_tokenizer *tokenizer, weft_error *err); /* NULL: no memory */
void bpe_scratch_give(const weft_tokenizer *tokenizer, bpe_scratch *scratch);
void bpe_scratch_free(const weft_host *host, bpe_scratch *scratch);

/* Implements create except for the pool's lock. The tokenizer must be zeroed except for its host. */
weft_status bpe_tokenizer_read(weft_tokenizer *tokenizer, const char *directory, weft_error *err);

/* Frees the result of bpe_tokenizer_read, which may then be called again. */
void bpe_tokenizer_clear(weft_tokenizer *tokenizer);

/* Indices of the parsed files; a missing file is NULL. */
enum { BPE_JSON_TOKENIZER, BPE_JSON_CONFIG, BPE_JSON_MAP, BPE_JSON_ADDED, BPE_JSON_MODEL, BPE_N_JSON };

/* Edits the files to match AutoTokenizer of transformers. Replaces a missing tokenizer_config.json by an empty one. */
weft_status bpe_auto_edit(json_t *json[BPE_N_JSON], const weft_host *host, const char *directory, weft_error *err);

/* Writes "DIRECTORY/NAME" of a tokenizer file. */
enum { BPE_PATH_BYTES = 4096 };
weft_status bpe_path(char out[BPE_PATH_BYTES], const char *directory, const char *name, weft_error *err);

/* Implement weft_tokenizer_add: add tokens, and return a file's text or JSON with them. json may be NULL. */
weft_status bpe_tokens_add(weft_tokenizer *tokenizer, const char *const *names, uint32_t n, int32_t pad,
                           weft_error *err);
weft_status bpe_tokens_file(const weft_tokenizer *tokenizer, uint32_t i, const weft_text_sink *sink, int32_t *changed,
                            weft_error *err);
bool bpe_tokens_edit(const weft_tokenizer *tokenizer, const char *name, json_t *json);
void bpe_tokens_free(weft_tokenizer *tokenizer);

weft_status bpe_encode(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text, size_t bytes,
                       uint32_t flags, weft_error *err);
weft_status bpe_decode_ids(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids, size_t n,
                           uint32_t flags, weft_error *err);

#endif
