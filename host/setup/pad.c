/* host/setup/pad.c: see pad.h. Which id it is follows from the tokenizer alone, so each command that opens the run
 * comes to the same model. */
#include "setup/pad.h"

#include "plugin/call.h"
#include "plugin/enter.h"

#include <jansson.h>
#include <stdlib.h>

/* The id of what is written so; -1: there is none, or the tokenizer does not say. */
static int32_t find_token(const weft_text *text, const char *name) {
    const weft_tokenizer_special *special = weft_text_extension(text, WEFT_TOKENIZER_SPECIAL);
    if (special == NULL || !WEFT_WHOLE(special, weft_tokenizer_special)) return -1;
    return special->id(text->tokenizer, name, strlen(name));
}

weft_status weft_pad_give(weft_text *text, const weft_run *run, weft_error *err) {
    const char *name = run->settings.tokenizer.pad_token;
    const weft_tokenizer_pad *pad = weft_text_extension(text, WEFT_TOKENIZER_PAD);
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info, .pad = -1};
    weft_status status = WEFT_OK;
    if (*name == '\0') return weft_config_reject(run->config, "tokenizer", "pad_token", err, "is empty");
    WEFT_PLUGIN_TELL(text->plugin, info, text->tokenizer, &info);
    if (info.pad >= 0 && info.pad == find_token(text, name)) return WEFT_OK;
    if (info.pad >= 0)
        return weft_config_reject(run->config, "tokenizer", "pad", err,
                                  "asks for a pad token, and the tokenizer in %s has one, id %d, which is not %s: take "
                                  "the line out",
                                  text->directory, (int)info.pad, name);
    if (pad == NULL || !WEFT_WHOLE(pad, weft_tokenizer_pad))
        return weft_config_reject(run->config, "tokenizer", "pad", err,
                                  "asks for a pad token, which the tokenizer plugin %s cannot add: take the line out",
                                  weft_run_id(run, WEFT_PART_TOKENIZER));
    WEFT_PLUGIN_CALL(status, pad, add, err, text->tokenizer, name);
    if (status == WEFT_OK) text->pad = pad;
    return weft_plugin_blame(text->plugin, status, err);
}

/* vocab_size of config.json; 0: it has none. */
static int64_t read_rows(const char *directory) {
    char *path = NULL;
    json_t *config = NULL;
    int64_t rows = 0;
    if (asprintf(&path, "%s/config.json", directory) < 0) return 0;
    config = json_load_file(path, 0, NULL);
    rows = (int64_t)json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
    free(path);
    return rows;
}

static void tell_pad(const weft_run *run, const weft_text *text, int64_t rows) {
    const bool grows = text->info.pad == rows;
    if ((text->pad == NULL && !grows) || text->info.pad > rows) return; /* which belong to another model */
    weft_log(run->host, WEFT_LOG_INFO, "the pad token %s has the id %d: %s", run->settings.tokenizer.pad_token,
             (int)text->info.pad,
             grows ? "embeddings (and a head of its own) get a row for it, the mean of the others"
                   : "the model has a row for it, which stays as it is");
}

weft_status weft_pad_settle(weft_run *run, weft_error *err) {
    const int64_t rows = read_rows(run->settings.model.path);
    weft_text text = {0};
    weft_status status = WEFT_OK;
    if (run->parts[WEFT_PART_MODEL].loaded == NULL || run->parts[WEFT_PART_TOKENIZER].loaded == NULL) return WEFT_OK;
    status = weft_text_open(&text, run, err);
    if (status != WEFT_OK) return status;
    if (rows < 1)
        status =
            weft_config_reject(run->config, "tokenizer", "pad", err,
                               "asks for a pad token, and %s/config.json has no vocab_size that says how many rows "
                               "there are",
                               run->settings.model.path);
    else {
        const weft_vocabulary with = {rows, rows + (text.info.pad == rows), text.info.pad};
        if (with.pad < with.rows) run->vocabulary = with; /* else the two do not belong together, which is told later */
        tell_pad(run, &text, rows);
    }
    weft_text_close(&text);
    return status;
}
