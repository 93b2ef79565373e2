/* encode.c: encodes a conversation to ids, each with a weight as a target, and truncates one that is too long. */
#include "instruct.h"

#include "../../common/json_big.h"

/* Output of the tokenizer for one conversation. */
typedef struct rendered {
    const weft_host *host;
    data_array ids, answers; /* int32_t each */
} rendered;

static weft_status take(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    rendered *to = context;
    if (data_array_reserve(&to->ids, to->host, n, sizeof *ids) != WEFT_OK) return WEFT_E_MEMORY;
    if (data_array_reserve(&to->answers, to->host, n, sizeof *answers) != WEFT_OK) return WEFT_E_MEMORY;
    memcpy((int32_t *)to->ids.data + to->ids.n, ids, n * sizeof *ids);
    memcpy((int32_t *)to->answers.data + to->answers.n, answers, n * sizeof *answers);
    to->ids.n += n;
    to->answers.n += n;
    return WEFT_OK;
}

/* True if role and content do not describe the message completely: it has other keys, or these two in reverse order. */
static int needs_more(const json_t *message) {
    const void *first = json_object_iter((json_t *)(uintptr_t)message);
    return json_object_size(message) > 2 || !json_is_string(json_object_get(message, "content")) ||
           strcmp(json_object_iter_key((void *)(uintptr_t)first), "role") != 0;
}

/* Encodes a conversation. A message is passed as role and content, or as JSON with all keys, because a template may
 * print all of it. */
static weft_status call_tokenizer(rendered *out, const instruct_encoder *with, const instruct_record *record,
                                  const instruct_sample *sample, weft_error *err) {
    const size_t n = json_array_size(sample->messages);
    weft_chat_message *messages = calloc(n, sizeof *messages);
    char *variables = sample->variables == NULL ? NULL : json_big_dump(sample->variables, JSON_COMPACT);
    const weft_chat_sink sink = {out, take};
    weft_chat chat = {.struct_size = (uint32_t)sizeof chat};
    weft_status status = messages == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a conversation")
                                          : WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        const json_t *message = json_array_get(sample->messages, i), *content = json_object_get(message, "content");
        messages[i].struct_size = (uint32_t)sizeof *messages;
        messages[i].role = json_string_value(json_object_get(message, "role"));
        messages[i].content = json_string_value(content);
        messages[i].content_bytes = json_string_length(content);
        if (needs_more(message)) {
            messages[i].more = json_big_dump(message, JSON_COMPACT);
            messages[i].more_bytes = messages[i].more == NULL ? 0 : strlen(messages[i].more);
        }
    }
    chat.flags = WEFT_CHAT_COMPLETE | (with->config->special_tokens ? WEFT_CHAT_SPECIAL : 0);
    chat.messages = messages;
    chat.n_messages = n;
    chat.stride = (uint32_t)sizeof *messages;
    chat.named = strcmp(with->config->template, "own") == 0 ? NULL : with->config->template;
    chat.variables = variables;
    chat.variables_bytes = variables == NULL ? 0 : strlen(variables);
    chat.now = with->now;
    if (status == WEFT_OK) {
        status = with->job->chat(with->job, &sink, &chat, err);
        if (status != WEFT_OK)
            (void)weft_error_prefix(err, "%s:%llu: ", record->file->path, (unsigned long long)record->line);
    }
    for (size_t i = 0; messages != NULL && i < n; i++) free((char *)(uintptr_t)messages[i].more);
    free(messages);
    free(variables);
    return status;
}

static int32_t answer_of(int32_t answer) {
    return answer < 0 ? -1 : answer & ~WEFT_CHAT_END;
}

/* Returns true for an answer that a flag excludes from the loss. learned: flag per answer; NULL: no flags. */
static int is_skipped(const json_t *learned, int32_t answer) {
    const json_t *flag = answer < 0 ? NULL : json_array_get(learned, (size_t)answer);
    return json_is_false(flag);
}

/* Replaces answer numbers by weights in place. */
static void weigh(int32_t *answers, size_t n, const instruct_config *config, instruct_counts *counts,
                  const int32_t *ids, const json_t *learned) {
    int32_t before = -1, last = -1;
    for (size_t i = 0; i < n; i++) {
        const int32_t answer = answer_of(answers[i]);
        if (answer > last) last = answer;
        const int counted = answer >= 0 && !is_skipped(learned, answer);
        if (counted && answer != before) counts->answers++;
        if (counted && (answers[i] & WEFT_CHAT_END) != 0) {
            counts->ended++;
            counts->end_id = ids[i];
        }
        before = answer;
    }
    for (size_t i = 0; i < n; i++) {
        const int is_end = answers[i] >= 0 && (answers[i] & WEFT_CHAT_END) != 0;
        const int chosen = config->loss_on == LOSS_TEXT ||
                           (answers[i] >= 0 && (config->loss_on == LOSS_ANSWERS || answer_of(answers[i]) == last));
        answers[i] = chosen && !is_skipped(learned, answer_of(answers[i])) && !(is_end && !config->train_end);
    }
}

/* Chooses the part of at most `most` ids to keep. It ends with the last target. If the last answer is longer, it begins
 * one id before this answer. */
static void choose_window(const int32_t *weights, size_t n, size_t most, int has_bos, size_t *begin, size_t *end) {
    size_t last = n, first = 0;
    while (last > 0 && weights[last - 1] == 0) last--;
    *end = last == 0 ? n : last;
    *begin = *end > most ? *end - most : 0;
    if (*begin == 0) return;
    for (first = last; first > 0 && weights[first - 1] != 0;) first--; /* of the last run of targets */
    if (has_bos) ++*begin;                                             /* BOS is kept too */
    if (last > 0 && first > 0 && *begin >= first) {
        *begin = first - 1;
        *end = *begin + most - (has_bos && *begin > 0 ? 1 : 0);
        if (*end > last) *end = last;
    }
}

static weft_status append(instruct_ids *out, const weft_host *host, const int32_t *ids, const int32_t *weights,
                          size_t n) {
    if (data_array_reserve(&out->ids, host, n, sizeof *ids) != WEFT_OK) return WEFT_E_MEMORY;
    if (data_array_reserve(&out->weights, host, n, 1) != WEFT_OK) return WEFT_E_MEMORY;
    for (size_t i = 0; i < n; i++) {
        ((int32_t *)out->ids.data)[out->ids.n++] = ids[i];
        ((uint8_t *)out->weights.data)[out->weights.n++] = (uint8_t)weights[i];
    }
    return WEFT_OK;
}

static weft_status keep(instruct_ids *out, instruct_counts *counts, const instruct_encoder *with, const int32_t *ids,
                        const int32_t *weights, size_t n) {
    const size_t most = (size_t)with->config->context + 1;
    const int has_bos = n > 0 && with->job->tokenizer->bos >= 0 && ids[0] == with->job->tokenizer->bos;
    size_t begin = 0, end = n, last = n;
    weft_status status = WEFT_OK;
    if (n > most && with->config->too_long == LONG_DROP) {
        counts->dropped++;
        return WEFT_OK;
    }
    if (n > most) choose_window(weights, n, most, has_bos, &begin, &end);
    while (last > 0 && weights[last - 1] == 0) last--;
    if (begin > 0) {
        counts->cut++;
        counts->cut_tokens += begin - (size_t)(has_bos && begin > 0);
    }
    if (end < last) {
        counts->shortened++;
        counts->shortened_tokens += last - end;
    }
    if (begin > 0 && has_bos) status = append(out, with->host, ids, (const int32_t[]){0}, 1);
    return status == WEFT_OK ? append(out, with->host, ids + begin, weights + begin, end - begin) : status;
}

static weft_status judge_ids(const instruct_encoder *with, const instruct_record *record, const int32_t *ids, size_t n,
                             weft_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= with->job->vocab_size)
            return instruct_fail(
                err, record,
                "the tokenizer gives the id %d, but the model's vocabulary has %lld ids: tokenizer and "
                "model do not belong together",
                ids[i], (long long)with->job->vocab_size);
    return WEFT_OK;
}

/* Checks that the number of answers matches the flags of messages. With {% generation %} blocks, each block is an
 * answer. */
static weft_status judge_flags(const instruct_record *record, const instruct_sample *sample, const int32_t *answers,
                               size_t n, weft_error *err) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (answer_of(answers[i]) >= (int32_t)found) found = (size_t)answer_of(answers[i]) + 1;
    if (sample->learned == NULL || found == json_array_size(sample->learned)) return WEFT_OK;
    return instruct_fail(err, record,
                         "messages have flags (train, weight, training, loss), and the template writes %zu answers for "
                         "%zu messages of role assistant: the flags cannot be assigned to them",
                         found, json_array_size(sample->learned));
}

static void count_answers(instruct_counts *counts, const instruct_sample *sample, const instruct_config *config) {
    size_t all = 0, empty = 0;
    instruct_sample_answers(sample, config, &all, &empty);
    counts->silent += empty > 0 && empty == all;
    counts->empty += empty > 0;
    if (empty > 0 && counts->first_empty == 0) counts->first_empty = counts->records;
}

/* Returns true if an id after the first one is a target: a target needs an input before it. */
static int has_target(const instruct_ids *out, size_t first) {
    for (size_t i = first + 1; i < out->weights.n; i++)
        if (((const uint8_t *)out->weights.data)[i] != 0) return 1;
    return 0;
}

weft_status instruct_encode(instruct_ids *out, instruct_counts *counts, const instruct_encoder *with,
                            const instruct_record *record, weft_error *err) {
    const size_t first = out->ids.n;
    rendered text = {.host = with->host};
    instruct_sample sample;
    weft_status status = instruct_sample_read(&sample, record, with->config, err);
    if (status != WEFT_OK) return status;
    counts->records++;
    count_answers(counts, &sample, with->config);
    status = call_tokenizer(&text, with, record, &sample, err);
    if (status == WEFT_OK) status = judge_ids(with, record, text.ids.data, text.ids.n, err);
    if (status == WEFT_OK) status = judge_flags(record, &sample, text.answers.data, text.ids.n, err);
    if (status == WEFT_OK) {
        weigh(text.answers.data, text.ids.n, with->config, counts, text.ids.data, sample.learned);
        if (keep(out, counts, with, text.ids.data, text.answers.data, text.ids.n) != WEFT_OK)
            status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the ids");
    }
    if (status == WEFT_OK && out->ids.n > first && !has_target(out, first)) {
        counts->idle++;
        if (counts->first_idle == 0) counts->first_idle = counts->records;
    }
    instruct_sample_free(&sample);
    data_array_free(&text.ids, with->host);
    data_array_free(&text.answers, with->host);
    return status;
}
