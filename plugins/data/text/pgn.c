/* pgn.c: converts games in PGN to documents, one line each: the moves with their numbers, and the result. configs/chess
 * uses this format.
 *
 *     1. e4 e5 2. f4 exf4 3. Nf3 1-0
 *
 * Tags, comments, variations, NAGs ($4) and suffixes (!?) are removed. Moves are read without a board: text that is not
 * a move is an error, but an illegal move is not. */
#include "text.h"

#include <stdio.h>

enum { MOST_SHOWN = 24, MOST_MOVE = 12 };

typedef struct reader {
    const weft_host *host;
    text_source *source;
    size_t at;
    uint64_t line;
    data_array text; /* char: the output */
    size_t begun;    /* start of the current game's moves in the output */
    uint64_t first;  /* first line of the game; 0: outside of a game */
    uint64_t plies;
    uint64_t depth, opened; /* open variations, and the line of the outermost */
    int has_event, foreign; /* has a tag Event; has another start position or rules */
    size_t games, n_foreign, n_empty;
    weft_error *err;
} reader;

static int is_end(const reader *self) {
    return self->at >= self->source->n;
}

static char peek(const reader *self, size_t ahead) {
    return self->at + ahead < self->source->n ? self->source->bytes[self->at + ahead] : '\0';
}

static void skip(reader *self) {
    self->line += self->source->bytes[self->at++] == '\n';
}

static weft_status refuse(const reader *self, uint64_t line, const char *why) {
    return weft_error_set(self->err, WEFT_E_DATA, "%s:%llu: %s", self->source->path, (unsigned long long)line, why);
}

static weft_status no_memory(const reader *self) {
    return weft_error_set(self->err, WEFT_E_MEMORY, "no memory for the games of %s", self->source->path);
}

static weft_status no_result(const reader *self) {
    char why[120];
    (void)snprintf(why, sizeof why,
                   "the game that begins here has no result after its moves. Allowed: 1-0, 0-1, 1/2-1/2, *");
    return refuse(self, self->first, why);
}

/* Fails with a message "TEXT WHAT"; the text is made printable and truncated. */
static weft_status refuse_text(const reader *self, const char *text, size_t n, const char *what) {
    char shown[MOST_SHOWN + 1], why[160];
    const size_t most = n < MOST_SHOWN ? n : MOST_SHOWN;
    for (size_t i = 0; i < most; i++) shown[i] = text[i] > ' ' && text[i] < 0x7f ? text[i] : '?';
    shown[most] = '\0';
    (void)snprintf(why, sizeof why, "\"%s\"%s %s", shown, n > most ? "..." : "", what);
    return refuse(self, self->line, why);
}

/* --- output --- */

static weft_status put(reader *self, const char *text, size_t n) {
    if (data_array_reserve(&self->text, self->host, n, 1) != WEFT_OK) return no_memory(self);
    memcpy((char *)self->text.data + self->text.n, text, n);
    self->text.n += n;
    return WEFT_OK;
}

static weft_status put_move(reader *self, const char *move) {
    char text[MOST_MOVE + 32];
    const char *space = self->plies == 0 ? "" : " ";
    const int n = self->plies % 2 == 0 ? snprintf(text, sizeof text, "%s%llu. %s", space,
                                                  (unsigned long long)(self->plies / 2 + 1), move)
                                       : snprintf(text, sizeof text, "%s%s", space, move);
    self->plies++;
    return put(self, text, (size_t)n);
}

static weft_status add_game(reader *self) {
    const text_span span = {self->begun, self->text.n - self->begun, self->first};
    if (data_array_reserve(&self->source->spans, self->host, 1, sizeof span) != WEFT_OK) return no_memory(self);
    ((text_span *)self->source->spans.data)[self->source->spans.n++] = span;
    return put(self, "\n", 1);
}

static weft_status end_game(reader *self, const char *result) {
    weft_status status = WEFT_OK;
    self->games++;
    if (self->foreign || self->plies == 0) {
        self->n_foreign += (size_t)self->foreign;
        self->n_empty += self->foreign == 0;
        self->text.n = self->begun;
    } else {
        status = put(self, " ", 1);
        if (status == WEFT_OK) status = put(self, result, strlen(result));
        if (status == WEFT_OK) status = add_game(self);
    }
    self->begun = self->text.n;
    self->first = self->plies = 0;
    self->has_event = self->foreign = 0;
    return status;
}

/* --- moves --- */

static int one_of(char c, const char *set) {
    return c != '\0' && strchr(set, c) != NULL;
}

/* Normalizes castling, O-O and O-O-O, also with zeros, and the null move --. */
static const char *named_move(const char *text, size_t n) {
    static const char *const names[][2] = {{"O-O", "O-O"},     {"O-O-O", "O-O-O"}, {"0-0", "O-O"},
                                           {"0-0-0", "O-O-O"}, {"--", "--"},       {"Z0", "--"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == n && memcmp(names[i][0], text, n) == 0) return names[i][1];
    return NULL;
}

/* Checks the middle of a move: an optional disambiguation, an optional x, and a square. */
static int is_way(const char *text, size_t n, int is_pawn) {
    if (n < 2 || !one_of(text[n - 2], "abcdefgh") || !one_of(text[n - 1], "12345678")) return 0;
    n -= 2;
    if (is_pawn) return n == 0 || (n == 2 && one_of(text[0], "abcdefgh") && text[1] == 'x');
    if (n > 0 && text[n - 1] == 'x') n--;
    if (n > 0 && one_of(text[0], "abcdefgh")) text++, n--;
    if (n > 0 && one_of(text[0], "12345678")) n--;
    return n == 0;
}

/* Normalizes a move to the export format of SAN. Returns 0 if it is not a move. */
static int canonical(char out[MOST_MOVE], const char *text, size_t n) {
    const char *check = "", *name = NULL;
    char piece = '\0', promoted = '\0';
    for (; n > 0 && one_of(text[n - 1], "+#"); n--) check = text[n - 1] == '#' || check[0] == '#' ? "#" : "+";
    name = named_move(text, n);
    if (name != NULL) return snprintf(out, MOST_MOVE, "%s%s", name, check) > 0;
    if (n > 0 && one_of(text[0], "KQRBNP")) piece = *text++, n--;
    if (n > 2 && (piece == '\0' || piece == 'P') && one_of(text[n - 1], "QRBN")) promoted = text[--n];
    if (promoted != '\0' && text[n - 1] == '=') n--;
    if (n > 5 || !is_way(text, n, piece == '\0' || piece == 'P')) return 0;
    return snprintf(out, MOST_MOVE, "%.*s%.*s%s%.1s%s", piece != '\0' && piece != 'P', &piece, (int)n, text,
                    promoted != '\0' ? "=" : "", &promoted, check) > 0;
}

static const char *result_of(const char *text, size_t n) {
    static const char *const names[][2] = {{"1-0", "1-0"}, {"0-1", "0-1"}, {"1/2-1/2", "1/2-1/2"}, {"1/2", "1/2-1/2"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == n && memcmp(names[i][0], text, n) == 0) return names[i][1];
    return NULL;
}

static weft_status take_number(const reader *self, const char *text, size_t n) {
    uint64_t number = 0;
    for (size_t i = 0; i < n && number < 100000; i++) number = number * 10 + (uint64_t)(text[i] - '0');
    if (self->foreign || number == self->plies / 2 + 1) return WEFT_OK;
    return refuse_text(self, text, n, "is not the number of the next move: a game must begin with its first move");
}

static weft_status take_word(reader *self, const char *text, size_t n) {
    char move[MOST_MOVE];
    const char *result = result_of(text, n);
    size_t digits = 0;
    while (digits < n && one_of(text[digits], "0123456789")) digits++;
    if (self->first == 0) self->first = self->line;
    if (self->depth > 0) return WEFT_OK;
    if (result != NULL) return end_game(self, result);
    if (digits == n) return take_number(self, text, n);
    if (self->foreign) return WEFT_OK;
    if (canonical(move, text, n)) return put_move(self, move);
    return refuse_text(self, text, n, "is not a move. Allowed: e4, Nf3, exd5, O-O, e8=Q and so on");
}

/* --- text around the moves --- */

static void skip_line(reader *self) {
    while (!is_end(self) && self->source->bytes[self->at] != '\n') self->at++;
}

static weft_status skip_comment(reader *self) {
    const uint64_t line = self->line;
    while (!is_end(self) && peek(self, 0) != '}') skip(self);
    if (is_end(self)) return refuse(self, line, "the comment that begins here is not closed by }");
    self->at++;
    return WEFT_OK;
}

static void skip_blanks(reader *self) {
    while (one_of(peek(self, 0), " \t")) self->at++;
}

/* Returns the raw value between quotes; NULL: not closed on this line. */
static const char *tag_value(reader *self, size_t *n) {
    const size_t begin = self->at + 1;
    if (peek(self, 0) != '"') return NULL;
    for (self->at = begin; !is_end(self) && peek(self, 0) != '"'; self->at++) {
        if (peek(self, 0) == '\n') return NULL;
        if (peek(self, 0) == '\\' && one_of(peek(self, 1), "\"\\")) self->at++;
    }
    if (is_end(self)) return NULL;
    *n = self->at++ - begin;
    return self->source->bytes + begin;
}

static int is(const char *text, size_t n, const char *name) {
    return n == strlen(name) && memcmp(text, name, n) == 0;
}

/* Returns true for a tag that makes the moves ambiguous: [SetUp "1"], [FEN "..."] or [Variant "..."]. */
static int is_foreign(const char *name, size_t n, const char *value, size_t value_n) {
    static const char start[] = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";
    if (is(name, n, "FEN")) return !is(value, value_n, start);
    if (!is(name, n, "Variant")) return 0;
    return !is(value, value_n, "Standard") && !is(value, value_n, "standard") && !is(value, value_n, "From Position");
}

static weft_status take_tag(reader *self) {
    const uint64_t line = self->line;
    const char *name = NULL, *value = NULL;
    size_t n = 0, value_n = 0;
    if (self->depth > 0) return refuse(self, self->opened, "the variation that begins here is not closed by )");
    self->at++;
    skip_blanks(self);
    name = self->source->bytes + self->at;
    while (!is_end(self) && !one_of(peek(self, 0), " \t\r\n\"]")) self->at++, n++;
    if (self->plies > 0 || (is(name, n, "Event") && self->has_event)) return no_result(self);
    skip_blanks(self);
    value = tag_value(self, &value_n);
    skip_blanks(self);
    if (n == 0 || value == NULL || peek(self, 0) != ']') return refuse(self, line, "a tag is not [Name \"value\"]");
    self->at++;
    if (self->first == 0) self->first = line;
    self->has_event |= is(name, n, "Event");
    self->foreign |= is_foreign(name, n, value, value_n);
    return WEFT_OK;
}

static weft_status close_variation(reader *self) {
    if (self->depth == 0) return refuse(self, self->line, "a ) without a variation");
    self->depth--;
    return WEFT_OK;
}

/* Reads a word: a move, a number, a result, or e.p. after a move, which is ignored. */
static weft_status next_word(reader *self) {
    const char *text = self->source->bytes + self->at;
    size_t n = 0;
    if (self->source->n - self->at >= 4 && memcmp(text, "e.p.", 4) == 0) {
        self->at += 4;
        return WEFT_OK;
    }
    while (!is_end(self) && !one_of(peek(self, 0), " \t\r\n.{}()[];$!?*\v\f") && peek(self, 0) != '\0') self->at++, n++;
    if (n > 0) return take_word(self, text, n);
    return refuse_text(self, text, 1, "is outside of a game");
}

static weft_status next(reader *self) {
    const char c = peek(self, 0);
    const int fresh = self->at == self->source->begin || self->source->bytes[self->at - 1] == '\n';
    if (one_of(c, " \t\r\n\v\f.!?")) return skip(self), WEFT_OK;
    if (c == ';' || (c == '%' && fresh)) return skip_line(self), WEFT_OK;
    if (c == '{') return skip_comment(self);
    if (c == '[') return take_tag(self);
    if (c == ')') self->at++;
    if (c == ')') return close_variation(self);
    if (c == '(') {
        if (self->depth++ == 0) self->opened = self->line;
        self->at++;
        return WEFT_OK;
    }
    if (c == '$') {
        for (self->at++; one_of(peek(self, 0), "0123456789");) self->at++;
        return WEFT_OK;
    }
    if (c != '*') return next_word(self);
    if (self->first == 0) self->first = self->line;
    self->at++;
    return self->depth > 0 ? WEFT_OK : end_game(self, "*");
}

static void tell(const reader *self) {
    if (self->n_foreign > 0)
        weft_log(self->host, WEFT_LOG_WARN,
                 "%s: %zu of %zu games have another start position or other rules ([FEN], [Variant]) and are "
                 "dropped",
                 self->source->path, self->n_foreign, self->games);
    if (self->n_empty > 0)
        weft_log(self->host, WEFT_LOG_WARN, "%s: %zu of %zu games have no move and are dropped", self->source->path,
                 self->n_empty, self->games);
}

weft_status text_pgn_cut(text_source *source, const weft_host *host, weft_error *err) {
    reader self = {.host = host, .source = source, .at = source->begin, .line = 1, .err = err};
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && !is_end(&self)) status = next(&self);
    if (status == WEFT_OK && self.depth > 0)
        status = refuse(&self, self.opened, "the variation that begins here is not closed by )");
    if (status == WEFT_OK && self.first != 0) status = no_result(&self);
    if (status == WEFT_OK && source->spans.n == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] %s = %s contains no usable game with a move", source->key,
                                source->path);
    if (status == WEFT_OK) {
        tell(&self);
        data_array_free(&source->held, host);
        source->held = self.text;
        source->bytes = self.text.data;
        source->n = self.text.n;
        source->begin = 0;
        return WEFT_OK;
    }
    data_array_free(&self.text, host);
    return status;
}
