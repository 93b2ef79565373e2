/* chat_answers.c: finds the bytes of the answers in a conversation rendered by a template without {% generation %}
 * blocks.
 *
 * The answer of an assistant message begins after the generation prompt and ends where the template's turn for the
 * message ends. A turn is the output of one iteration of the loop over messages, known from the marks of its bytes. The
 * generation prompt is the template's output after the earlier messages: they are rendered separately, with
 * add_generation_prompt. Some templates render earlier messages differently in a longer conversation, so the
 * conversation does not begin with that text. Then only the text from the previous turn on is compared. */
#include "chat.h"

/* A rendering of a subset of the messages. */
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

/* Renders the first n messages, followed by a user message if `with_user`. */
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

/* True after a marker or word, where the texts of two headers may begin to differ. */
static bool is_boundary(const jinja_output *text, size_t at) {
    return at == 0 || strchr(" \t\r\n>]:", text->bytes[at - 1]) != NULL;
}

/* Returns the range of bytes that the turn of message i wrote; {0, 0}: none. */
static span turn_span(const jinja_output *text, size_t i) {
    span turn = {0, 0};
    for (size_t at = 0; at < text->n; at++) {
        if (turn_of(text, at) != i + 1) continue;
        if (turn.end == 0) turn.begin = at;
        turn.end = at + 1;
    }
    return turn;
}

/* Returns the number of bytes that the text from `at` shares with the prompt from `from`: the complete prompt, the
 * complete text, which is then without an answer, or complete markers and words before the first byte of the answer's
 * message, `origin`. */
static size_t shared_prompt(const jinja_output *text, size_t at, size_t end, const jinja_output *prompt, size_t from,
                            uint32_t origin) {
    size_t n = common(prompt->bytes + from, prompt->n - from, text->bytes + at, end - at);
    if (n == prompt->n - from) return n;
    for (size_t i = 0; i < n; i++)
        if (JINJA_ORIGIN(text->marks[at + i]) == origin) n = i;
    if (n == end - at) return n;
    while (n > 0 && !is_boundary(text, at + n)) n--;
    return n;
}

static size_t skip_space(const jinja_output *text, size_t at, size_t end) {
    while (at < end && JINJA_ORIGIN(text->marks[at]) == JINJA_TEMPLATE && strchr(" \t\r\n", text->bytes[at]) != NULL)
        at++;
    return at;
}

/* Returns the start of the answer in the turn of message i. The prompt may be in the previous turn, in the text that
 * follows it, or, with a header, only in what add_generation_prompt appends, with other white space before it: the
 * longest match counts. header: start of the appended bytes; 0: unknown. */
static size_t begin_in_turn(const jinja_output *text, size_t i, span turn, const jinja_output *prompt, size_t header) {
    const span here = i > 0 ? turn_span(text, i - 1) : (span){0, 0};
    const span there = i > 0 ? turn_span(prompt, i - 1) : (span){0, 0};
    size_t from = prompt->n, n = 0, longest = 0;
    while (from > 0 && turn_of(prompt, from - 1) == 0) from--;
    longest = turn.begin + shared_prompt(text, turn.begin, turn.end, prompt, from, CHAT_ORIGIN(i));
    if (header > 0) {
        const size_t at = skip_space(text, turn.begin, turn.end);
        n = shared_prompt(text, at, turn.end, prompt, skip_space(prompt, header, prompt->n), CHAT_ORIGIN(i));
        if (n > 0 && at + n > longest) longest = at + n;
    }
    if (here.end == 0 || there.end == 0 || here.end > turn.begin) return longest;
    n = here.begin + shared_prompt(text, here.begin, turn.end, prompt, there.begin, CHAT_ORIGIN(i));
    return n > longest ? n : longest;
}

/* True if the turn of message i begins with other bytes than the message's, and none of them is in the generation
 * prompt. */
static bool is_other_header(const jinja_output *text, size_t i, span turn, size_t begin) {
    const size_t at = skip_space(text, turn.begin, turn.end);
    return begin == turn.begin && at < turn.end && JINJA_ORIGIN(text->marks[at]) != CHAT_ORIGIN(i);
}

/* Sets *header to the length of the rendering of the first i messages without a generation prompt, if the prompt only
 * appends to it; 0: it does not, or the template rejects these messages. */
static weft_status find_header(size_t *header, const chat_work *work, size_t i, const jinja_output *prompt,
                               bool with_user, weft_error *err) {
    weft_error ignored = WEFT_ERROR_INIT;
    rendering plain = {0};
    const weft_status status = render_part(&plain, work, i, with_user, false, &ignored);
    const bool appends = status == WEFT_OK && plain.text.n < prompt->n && begins_with(prompt, &plain.text);
    *header = appends ? plain.text.n : 0;
    jinja_end(plain.render);
    return status == WEFT_OK || status == WEFT_E_DATA ? WEFT_OK : weft_error_set(err, status, "%s", ignored.text);
}

/* Finds the end of the generation prompt of message i. turn.end > 0: the message has a turn. */
static weft_status find_begin(size_t *begin, const jinja_output *text, const chat_work *work, size_t i, span turn,
                              weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    rendering prompt = {0};
    weft_status status = render_part(&prompt, work, i, false, true, &why);
    const bool refused = status == WEFT_E_DATA;
    size_t header = 0;
    if (refused) { /* the template rejects the earlier messages: none, or an assistant message last */
        jinja_end(prompt.render);
        prompt = (rendering){0};
        status = render_part(&prompt, work, i, true, true, &why);
    }
    if (status == WEFT_E_DATA) status = fail(i, why.text, err);
    else if (status != WEFT_OK) status = weft_error_set(err, status, "%s", why.text);
    else if (!refused && begins_with(text, &prompt.text) && (turn.end == 0 || prompt.text.n <= turn.end))
        *begin = prompt.text.n;
    else if (turn.end > 0) {
        status = find_header(&header, work, i, &prompt.text, refused, err);
        *begin = begin_in_turn(text, i, turn, &prompt.text, header);
        if (status == WEFT_OK && header > 0 && is_other_header(text, i, turn, *begin))
            status = fail(i, "its header differs from the generation prompt", err);
    } else
        status = fail(i,
                      "no loop over messages writes it, and the earlier messages are rendered differently without it",
                      err);
    jinja_end(prompt.render);
    return status;
}

/* Finds the end of the output for the first i + 1 messages. turn.end > 0: the end is in the turn. */
static weft_status find_end(size_t *end, const jinja_output *text, const chat_work *work, size_t i, span turn,
                            weft_error *err) {
    rendering upto = {0};
    weft_status status = render_part(&upto, work, i + 1, false, false, err);
    size_t n = 0;
    if (status == WEFT_OK) {
        const span last = turn_span(&upto.text, i);
        if (turn.end > 0 && last.end > 0) upto.text.n = last.end; /* without a prompt that is always written */
        n = common(text->bytes, text->n, upto.text.bytes, upto.text.n);
        if (n < upto.text.n && turn.end > 0)
            while (n > turn.begin && !is_boundary(text, n)) n--;
        else if (n < upto.text.n)
            status =
                fail(i, "no loop over messages writes it, and it is rendered differently as the last message", err);
        *end = turn.end > 0 && n > turn.end ? turn.end : n;
    }
    jinja_end(upto.render);
    return status;
}

/* Returns the turn of message i. *shared: it contains bytes of other messages. *given: the text contains bytes of the
 * message. *loops: some byte belongs to a turn. */
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
    if (turn.end == 0 && loops && !given) return WEFT_OK; /* the template omits the message */
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
