/* chat_answers.c: which bytes of a rendered conversation are answers, in a template without {% generation %} blocks.
 *
 * The answer of an assistant's message begins after the generation prompt and ends where the template's turn for the
 * message ends. The turn is known from the loop that wrote each byte. The generation prompt is what the template writes
 * after the messages before the answer: these messages are rendered by themselves, with add_generation_prompt. If the
 * conversation does not begin with that text, because the template writes earlier messages differently in a longer
 * conversation, only the text from the turn before the answer on is compared.
 */
#include "chat.h"

/* A rendering of some of the messages. */
typedef struct rendering {
    jinja_render *render;
    jinja_output text;
} rendering;

typedef struct span {
    size_t begin, end;
} span;

static uint32_t turn_of(const jinja_output *text, size_t i) {
    return JINJA_BLOCK(text->marks[i]);
}

static weft_status fail(size_t i, const char *why, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA,
                          "message %zu: the template does not show where its answer begins and ends: %s. Fix: put {%% "
                          "generation %%} and {%% endgeneration %%} around the answers in chat_template.jinja",
                          i + 1, why);
}

/* Renders the first n messages, and one of a user after them if `with_user`. */
static weft_status render_part(rendering *out, const chat_work *work, size_t n, bool with_user, bool prompt,
                               weft_error *err) {
    json_t *messages = json_array();
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n; i++) (void)json_array_append(messages, json_array_get(work->messages, i));
    if (with_user) (void)json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "-"));
    status = chat_run(&out->render, &out->text, work, messages, &prompt, err);
    json_decref(messages);
    return status;
}

static bool begins_with(const jinja_output *text, const jinja_output *part) {
    return part->n <= text->n && memcmp(text->bytes, part->bytes, part->n) == 0;
}

static size_t common(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

/* A place between two markers or words, at which the texts of two headers may part. */
static bool is_boundary(const jinja_output *text, size_t at) {
    return at == 0 || strchr(" \t\r\n>]:", text->bytes[at - 1]) != NULL;
}

/* First byte and end of what the turn of message i wrote; {0, 0}: nothing. */
static span turn_span(const jinja_output *text, size_t i) {
    span turn = {0, 0};
    for (size_t at = 0; at < text->n; at++) {
        if (turn_of(text, at) != i + 1) continue;
        if (turn.end == 0) turn.begin = at;
        turn.end = at + 1;
    }
    return turn;
}

/* Bytes of the text from `at` that the prompt from `from` shares: all of the prompt, or its complete markers and words
 * before the first byte that the answer's message, `origin`, holds. */
static size_t shared_prompt(const jinja_output *text, size_t at, size_t end, const jinja_output *prompt, size_t from,
                            uint32_t origin) {
    size_t n = common(prompt->bytes + from, prompt->n - from, text->bytes + at, end - at);
    if (n == prompt->n - from) return n;
    for (size_t i = 0; i < n; i++)
        if (JINJA_ORIGIN(text->marks[at + i]) == origin) n = i;
    while (n > 0 && !is_boundary(text, at + n)) n--;
    return n;
}

/* The beginning of the answer of message i in its turn. A prompt may be part of the turn before it, or follow it. */
static size_t begin_in_turn(const jinja_output *text, size_t i, span turn, const jinja_output *prompt) {
    const span here = i > 0 ? turn_span(text, i - 1) : (span){0, 0};
    const span there = i > 0 ? turn_span(prompt, i - 1) : (span){0, 0};
    size_t from = prompt->n, n = 0;
    if (here.end > 0 && there.end > 0 && here.end <= turn.begin) {
        n = shared_prompt(text, here.begin, turn.end, prompt, there.begin, CHAT_ORIGIN(i));
        if (here.begin + n > turn.begin) return here.begin + n;
    }
    while (from > 0 && turn_of(prompt, from - 1) == 0) from--;
    return turn.begin + shared_prompt(text, turn.begin, turn.end, prompt, from, CHAT_ORIGIN(i));
}

/* The end of the generation prompt of message i. turn.end > 0: the bytes that its turn wrote. */
static weft_status find_begin(size_t *begin, const jinja_output *text, const chat_work *work, size_t i, span turn,
                              weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    rendering prompt = {0};
    weft_status status = render_part(&prompt, work, i, false, true, &why);
    const bool refused = status == WEFT_E_DATA;
    if (refused) { /* the messages before it are no conversation: none, or an assistant's */
        jinja_end(prompt.render);
        prompt = (rendering){0};
        status = render_part(&prompt, work, i, true, true, &why);
    }
    if (status == WEFT_E_DATA) status = fail(i, why.text, err);
    else if (status != WEFT_OK) status = weft_error_set(err, status, "%s", why.text);
    else if (!refused && begins_with(text, &prompt.text) && (turn.end == 0 || prompt.text.n <= turn.end))
        *begin = prompt.text.n;
    else if (turn.end > 0) *begin = begin_in_turn(text, i, turn, &prompt.text);
    else
        status =
            fail(i, "no loop over messages writes it, and the messages before it have another text by themselves", err);
    jinja_end(prompt.render);
    return status;
}

/* The end of the text of the first i + 1 messages; turn.end > 0: the end is in the turn. */
static weft_status find_end(size_t *end, const jinja_output *text, const chat_work *work, size_t i, span turn,
                            weft_error *err) {
    rendering upto = {0};
    weft_status status = render_part(&upto, work, i + 1, false, false, err);
    size_t n = 0;
    if (status == WEFT_OK) {
        const span last = turn_span(&upto.text, i);
        if (turn.end > 0 && last.end > 0) upto.text.n = last.end; /* a prompt that is always written is no part of it */
        n = common(text->bytes, text->n, upto.text.bytes, upto.text.n);
        if (n < upto.text.n && turn.end > 0)
            while (n > turn.begin && !is_boundary(text, n)) n--;
        else if (n < upto.text.n)
            status = fail(i, "no loop over messages writes it, and it has another text as the last message", err);
        *end = turn.end > 0 && n > turn.end ? turn.end : n;
    }
    jinja_end(upto.render);
    return status;
}

/* The turn of message i. *shared: bytes of other messages are in it. *given: bytes that the message holds are anywhere
 * in the text. *loops: any byte has a turn. */
static span find_turn(const jinja_output *text, size_t i, bool *shared, bool *given, bool *loops) {
    const span turn = turn_span(text, i);
    *shared = *given = *loops = false;
    for (size_t at = 0; at < text->n; at++) {
        const uint32_t origin = JINJA_ORIGIN(text->marks[at]);
        *given = *given || origin == CHAT_ORIGIN(i);
        *loops = *loops || turn_of(text, at) != 0;
        if (at < turn.begin || at >= turn.end) continue;
        *shared = *shared || turn_of(text, at) != i + 1 || (origin >= CHAT_ORIGIN(0) && origin != CHAT_ORIGIN(i));
    }
    return turn;
}

static weft_status mark_answer(chat_text *out, const chat_work *work, size_t i, int32_t number, weft_error *err) {
    bool shared = false, given = false, loops = false;
    const span turn = find_turn(&out->text, i, &shared, &given, &loops);
    span answer = turn;
    weft_status status = WEFT_OK;
    if (turn.end == 0 && loops && !given) return WEFT_OK; /* the template leaves the message out */
    status = find_begin(&answer.begin, &out->text, work, i, turn, err);
    if (status == WEFT_OK && (shared || turn.end == 0)) status = find_end(&answer.end, &out->text, work, i, turn, err);
    for (size_t at = answer.begin; status == WEFT_OK && at < answer.end; at++)
        if (out->answers[at] < 0) out->answers[at] = number;
    return status;
}

weft_status chat_answers(chat_text *out, const chat_work *work, weft_error *err) {
    int32_t number = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < json_array_size(work->messages) && status == WEFT_OK; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(work->messages, i), "role"));
        if (strcmp(role, "assistant") == 0) status = mark_answer(out, work, i, number++, err);
    }
    return status;
}
