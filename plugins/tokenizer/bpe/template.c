/* template.c: reads post-processors. Only the tokens that TemplateProcessing adds around a single text are relevant;
 * ByteLevel changes offsets but no ids. The host supports one token before and one after the text; more are an
 * error. */
#include "special.h"

typedef struct side {
    int32_t *id;
    const char *word;
} side;

static weft_status token_id(int32_t *out, const bpe_place *at, const json_t *json, const char *name, weft_error *err) {
    const bpe_place tokens = bpe_place_key(at, "special_tokens"), one = bpe_place_key(&tokens, name);
    const bpe_place here = bpe_place_key(&one, "ids");
    const json_t *ids = json_object_get(json_object_get(json_object_get(json, "special_tokens"), name), "ids");
    if (json_array_size(ids) != 1) return bpe_json_fail(err, &here, "must be an array of one id.");
    return bpe_json_id(out, &here, json_array_get(ids, 0), err);
}

static weft_status put_token(const side *to, const bpe_place *at, const bpe_place *processor, const json_t *json,
                             const json_t *piece, weft_error *err) {
    const char *name = json_string_value(json_object_get(piece, "id"));
    if (name == NULL) return bpe_json_fail(err, at, "SpecialToken needs a string as its id.");
    if (*to->id >= 0) return bpe_json_fail(err, at, "more than one token %s a text is not supported.", to->word);
    return token_id(to->id, processor, json, name, err);
}

static weft_status read_template(bpe_template *self, const bpe_place *at, const json_t *json, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "single");
    const side before = {&self->before, "before"}, after = {&self->after, "after"};
    const json_t *single = NULL;
    bool text = false;
    weft_status status = bpe_json_known(at, json, "type single pair special_tokens", err);
    if (status == WEFT_OK) status = bpe_json_array(&single, at, json, "single", err);
    for (size_t i = 0; i < json_array_size(single) && status == WEFT_OK; i++) {
        const bpe_place one = bpe_place_index(&here, i);
        const json_t *piece = json_array_get(single, i);
        const json_t *sequence = json_object_get(piece, "Sequence"), *token = json_object_get(piece, "SpecialToken");
        const char *name = json_string_value(json_object_get(sequence, "id"));
        if (token != NULL) {
            status = put_token(text ? &after : &before, &one, at, json, token, err);
        } else if (name != NULL && strcmp(name, "A") == 0 && !text) {
            text = true;
        } else {
            status = bpe_json_fail(err, &one, "must be a SpecialToken, or once the Sequence A.");
        }
    }
    if (status == WEFT_OK && !text) status = bpe_json_fail(err, &here, "lacks the Sequence A, the text itself.");
    return status;
}

static weft_status read_step(void *self, const bpe_place *at, const json_t *json, const char *type, weft_error *err) {
    const bpe_place here = bpe_place_key(at, "type");
    if (strcmp(type, "ByteLevel") == 0)
        return bpe_json_known(at, json, "type add_prefix_space trim_offsets use_regex", err);
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(self, at, json, err);
    return bpe_json_fail(err, &here,
                         "the post-processor %s is not supported. Allowed: Sequence, ByteLevel, "
                         "TemplateProcessing.",
                         bpe_quote(type, strlen(type)).text);
}

weft_status bpe_template_read(bpe_template *self, const bpe_place *at, const json_t *json, weft_error *err) {
    self->before = self->after = -1;
    return bpe_json_steps(self, read_step, at, json, "processors", err);
}
