/* bpe: byte-pair encoding of Hugging Face's tokenizer.json (tokenizer/1).
 *
 * Supports SentencePiece style with byte tokens (LLaMA 1 and 2, Mistral) and byte-level (GPT-2, LLaMA 3, Qwen 2). Ids
 * equal those of the `tokenizers` library. An unsupported feature in a file is an error that names it. A text may
 * contain invalid UTF-8: stray bytes are encoded separately and decoded unchanged. */
#include "chat_ids.h"
#include "tokenizer.h"

WEFT_NO_KEYS(bpe_config)

void bpe_tokenizer_clear(weft_tokenizer *tokenizer) {
    bpe_model_free(&tokenizer->model);
    bpe_normal_free(&tokenizer->normal);
    bpe_split_free(&tokenizer->split);
    bpe_added_free(&tokenizer->added);
    bpe_decode_free(&tokenizer->decode);
    chat_close(&tokenizer->chat);
    tokenizer->host->release(tokenizer->host, tokenizer->added_by_id);
    for (bpe_scratch *at = tokenizer->pool, *next = NULL; at != NULL; at = next) {
        next = at->next;
        bpe_scratch_free(tokenizer->host, at);
    }
    memset(&tokenizer->model, 0, sizeof tokenizer->model);
    memset(&tokenizer->normal, 0, sizeof tokenizer->normal);
    memset(&tokenizer->split, 0, sizeof tokenizer->split);
    memset(&tokenizer->added, 0, sizeof tokenizer->added);
    memset(&tokenizer->decode, 0, sizeof tokenizer->decode);
    memset(&tokenizer->chat, 0, sizeof tokenizer->chat);
    memset(tokenizer->files, 0, sizeof tokenizer->files);
    tokenizer->added_by_id = NULL;
    tokenizer->pool = NULL;
}

static void destroy(weft_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    bpe_tokenizer_clear(tokenizer);
    if (tokenizer->has_lock) (void)pthread_mutex_destroy(&tokenizer->lock);
    tokenizer->host->release(tokenizer->host, tokenizer->directory.bytes);
    bpe_tokens_free(tokenizer);
    tokenizer->host->release(tokenizer->host, tokenizer);
}

static weft_status create(weft_tokenizer **out, const weft_host *host, const void *config, const char *directory,
                          weft_error *err) {
    weft_tokenizer *fresh = bpe_zeros(host, 1, sizeof *fresh);
    weft_status status = WEFT_OK;
    (void)config;
    if (fresh == NULL) return bpe_no_memory(err);
    fresh->host = host;
    fresh->has_lock = pthread_mutex_init(&fresh->lock, NULL) == 0;
    if (!fresh->has_lock || !bpe_text_set(&fresh->directory, host, directory, strlen(directory)))
        status = bpe_no_memory(err);
    if (status == WEFT_OK) status = bpe_tokenizer_read(fresh, directory, err);
    if (status != WEFT_OK) destroy(fresh);
    else *out = fresh;
    return status;
}

static void info(const weft_tokenizer *tokenizer, weft_tokenizer_info *out) {
    const bpe_special *special = &tokenizer->special;
    out->flags = 0;
    out->vocab_size = tokenizer->n_ids;
    out->bos = special->bos;
    out->eos = special->eos;
    out->unk = special->unknown;
    out->pad = special->pad;
    out->auto_bos = special->auto_bos ? 1 : 0;
    out->auto_eos = special->auto_eos ? 1 : 0;
    out->reserved = 0;
}

static const char *file(const weft_tokenizer *tokenizer, uint32_t i) {
    uint32_t n = 0;
    while (n < BPE_MOST_FILES && tokenizer->files[n] != NULL) n++;
    return i < n ? tokenizer->files[i] : json_string_value(json_array_get(tokenizer->chat.files, i - n));
}

static const void *extension(const weft_tokenizer *tokenizer, const char *id) {
    static const weft_tokenizer_chat chat = {(uint32_t)sizeof chat, 0,          bpe_chat_check,   bpe_chat_render,
                                             bpe_chat_encode,       chat_named, chat_named_source};
    static const weft_tokenizer_special special = {(uint32_t)sizeof special, 0, bpe_special_id, bpe_is_special};
    static const weft_tokenizer_add add = {(uint32_t)sizeof add, 0, bpe_tokens_add, bpe_tokens_file};
    (void)tokenizer;
    if (strcmp(id, WEFT_TOKENIZER_CHAT) == 0) return &chat;
    if (strcmp(id, WEFT_TOKENIZER_ADD) == 0) return &add;
    return strcmp(id, WEFT_TOKENIZER_SPECIAL) == 0 ? &special : NULL;
}

static const weft_tokenizer_plugin bpe_table = {
    (uint32_t)sizeof(weft_tokenizer_plugin), 0, create, destroy, info, bpe_encode, bpe_decode_ids, file, extension};

WEFT_PLUGIN(tokenizer, 1, "bpe", "0.1.0", "Byte-pair encoding from a Hugging Face tokenizer.json", bpe_config, NULL,
            bpe_table)
