/* host/run/facts.c: see facts.h. */
#include "run/facts.h"

#include "base/hash.h"
#include "base/words.h"

#include <stdlib.h>

enum {
    MOST_VALUE = 56, /* characters of a column */
    MOST_SHOWN = 4,  /* ways to differ */
    MOST_NAMED = 4   /* ranks */
};

/* ---- a list ---- */

weft_status weft_facts_begin(weft_facts *self, weft_error *err) {
    memset(self, 0, sizeof *self);
    self->file = open_memstream(&self->text, &self->bytes);
    if (self->file == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what ranks compare");
    return WEFT_OK;
}

void weft_facts_drop(weft_facts *self) {
    if (self->file != NULL) (void)fclose(self->file);
    free(self->text);
    memset(self, 0, sizeof *self);
}

/* Names and values are one line each. */
void weft_facts_add(weft_facts *self, const char *name, const char *format, ...) {
    char *value = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&value, format, args) < 0) value = NULL;
    va_end(args);
    for (char *at = value; at != NULL && *at != '\0'; at++)
        if (*at == '\t' || *at == '\n') *at = ' ';
    if (value == NULL || fprintf(self->file, "%s\t%s\n", name, value) < 0) self->failed = true;
    free(value);
}

/* ---- differences ---- */

/* A line: its name and value, and where the next one begins. */
typedef struct line {
    const char *name, *value, *next;
    int name_length, value_length;
} line;

static bool next_line(line *out, const char *at) {
    const char *tab = strchr(at, '\t'), *end = strchr(at, '\n');
    if (tab == NULL || end == NULL || tab > end) return false;
    out->name = at;
    out->name_length = (int)(tab - at);
    out->value = tab + 1;
    out->value_length = (int)(end - tab - 1);
    out->next = end + 1;
    return true;
}

static bool find_line(line *out, const char *text, const line *like) {
    while (next_line(out, text)) {
        if (out->name_length == like->name_length && memcmp(out->name, like->name, (size_t)like->name_length) == 0)
            return true;
        text = out->next;
    }
    out->value = "-";
    out->value_length = 1;
    return false;
}

/* What differs of `other` from `first`, as lines "name<TAB>value of first<TAB>value of other"; what only one of them
 * has is "-" in the other. *out: the caller's to free; "" where nothing differs. */
static weft_status list_differences_of(char **out, const char *first, const char *other, weft_error *err) {
    size_t bytes = 0;
    line a, b;
    FILE *file = open_memstream(out, &bytes);
    if (file == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what differs among ranks");
    for (const char *at = first; next_line(&a, at); at = a.next)
        if (!find_line(&b, other, &a) || a.value_length != b.value_length ||
            memcmp(a.value, b.value, (size_t)a.value_length) != 0)
            (void)fprintf(file, "%.*s\t%.*s\t%.*s\n", a.name_length, a.name, a.value_length, a.value, b.value_length,
                          b.value);
    for (const char *at = other; next_line(&b, at); at = b.next)
        if (!find_line(&a, first, &b))
            (void)fprintf(file, "%.*s\t-\t%.*s\n", b.name_length, b.name, b.value_length, b.value);
    if (fclose(file) == 0) return WEFT_OK;
    free(*out);
    *out = NULL;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for what differs among ranks");
}

/* Where to begin so that two values are seen to differ: the start, or a little before that place. */
static int begin_at(const char *a, int a_length, const char *b, int b_length) {
    const int before = 12;
    int alike = 0;
    if (a_length <= MOST_VALUE && b_length <= MOST_VALUE) return 0;
    while (alike < a_length && alike < b_length && a[alike] == b[alike]) alike++;
    return alike < MOST_VALUE - 3 ? 0 : alike - before;
}

/* "...from there on, and as much as there is room for..." */
static void print_value(FILE *file, const char *value, int length, int from, int width) {
    char text[MOST_VALUE + 1];
    const char *before = from > 0 ? "..." : "";
    const int room = MOST_VALUE - (int)strlen(before), rest = length - from;
    if (rest > room) (void)snprintf(text, sizeof text, "%s%.*s...", before, room - 3, value + from);
    else (void)snprintf(text, sizeof text, "%s%.*s", before, rest, value + from);
    (void)fprintf(file, "  %-*s", width, text);
}

/* Differences as columns. */
static void print_lines(FILE *file, const char *lines, const char *ranks) {
    line l;
    int name = 0, value = (int)strlen("rank 0");
    for (const char *at = lines; next_line(&l, at); at = l.next) {
        const int first = (int)strcspn(l.value, "\t");
        if (l.name_length > name) name = l.name_length;
        if (first > value) value = first < MOST_VALUE ? first : MOST_VALUE;
    }
    (void)fprintf(file, "%-*s  %-*s  %s\n", name, "", value, "rank 0", ranks);
    for (const char *at = lines; next_line(&l, at); at = l.next) {
        const int first = (int)strcspn(l.value, "\t"), other = l.value_length - first - 1;
        const int from = begin_at(l.value, first, l.value + first + 1, other);
        (void)fprintf(file, "%-*.*s", name, l.name_length, l.name);
        print_value(file, l.value, first, from, value);
        print_value(file, l.value + first + 1, other, from, 0);
        (void)fputc('\n', file);
    }
}

/* ---- among ranks ---- */

/* Rank 0's text on every rank, as a copy to free. */
static weft_status share_first(char **out, const weft_facts *self, const weft_process_group *peers, weft_error *err) {
    int64_t bytes = (int64_t)self->bytes + 1;
    weft_status status = weft_process_group_broadcast(peers, &bytes, (int64_t)sizeof bytes, err);
    if (status != WEFT_OK) return status;
    *out = calloc(1, (size_t)bytes);
    if (*out == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what ranks compare");
    else if (peers->rank == 0) memcpy(*out, self->text, (size_t)bytes);
    status = weft_process_group_agree(peers, status, err);
    return status == WEFT_OK ? weft_process_group_broadcast(peers, *out, bytes, err) : status;
}

/* A number for a text, which is alike for texts that are; 0: an empty one. */
static weft_status number_of(int32_t *out, const char *text, weft_error *err) {
    char hex[65];
    const weft_status status = *text == '\0' ? WEFT_OK : weft_hash_text(hex, text, strlen(text), err);
    *out = 0;
    if (status == WEFT_OK && *text != '\0') *out = (int32_t)(strtoul(hex + 57, NULL, 16) | 1u);
    return status;
}

/* "rank 3" or "ranks 1, 3, 5 and 60 more": those with this number; 0: all that have one. */
static void name_ranks(char *out, size_t size, const int32_t *numbers, int32_t world, int32_t number) {
    int32_t n = 0, named = 0;
    for (int32_t rank = 1; rank < world; rank++) n += numbers[rank] != 0 && (number == 0 || numbers[rank] == number);
    (void)snprintf(out, size, "rank%s", n == 1 ? "" : "s");
    for (int32_t rank = 1; rank < world && named < MOST_NAMED; rank++) {
        if (numbers[rank] == 0 || (number != 0 && numbers[rank] != number)) continue;
        weft_words_append(out, size, "%s %d", named++ == 0 ? "" : ",", (int)rank);
    }
    if (n > named) weft_words_append(out, size, " and %d more", (int)(n - named));
}

static bool seen_before(const int32_t *numbers, int32_t rank) {
    int32_t before = 1;
    while (before < rank && numbers[before] != numbers[rank]) before++;
    return before < rank;
}

/* One differing rank's lines, on rank 0's stderr. */
static weft_status show_difference(const char *own, const weft_process_group *peers, int32_t rank, const char *ranks,
                                   weft_error *err) {
    int64_t bytes = (int64_t)strlen(own) + 1;
    char *text = NULL;
    weft_status status = peers->share(peers->context, &bytes, (int64_t)sizeof bytes, rank, err);
    if (status != WEFT_OK) return status;
    text = calloc(1, (size_t)bytes);
    if (text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what differs among ranks");
    else if (peers->rank == rank) memcpy(text, own, (size_t)bytes);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = peers->share(peers->context, text, bytes, rank, err);
    if (status == WEFT_OK && peers->rank == 0) print_lines(stderr, text, ranks);
    free(text);
    return status;
}

static weft_status judge_facts(const char *own, const weft_process_group *peers, const int32_t *numbers,
                               const char *what, weft_error *err) {
    char ranks[80];
    int32_t shown = 0;
    weft_status status = WEFT_OK;
    for (int32_t rank = 1; rank < peers->world && status == WEFT_OK; rank++) {
        if (numbers[rank] == 0 || seen_before(numbers, rank) || shown++ >= MOST_SHOWN) continue;
        name_ranks(ranks, sizeof ranks, numbers, peers->world, numbers[rank]);
        status = show_difference(own, peers, rank, ranks, err);
    }
    if (status != WEFT_OK || shown == 0) return status;
    name_ranks(ranks, sizeof ranks, numbers, peers->world, 0);
    (void)weft_error_set(err, WEFT_E_PEER, "%s and rank 0 differ in %s, as shown above; nothing was trained", ranks,
                         what);
    if (err != NULL && peers->rank != 0) err->text[0] = '\0'; /* said once */
    return WEFT_E_PEER;
}

weft_status weft_facts_compare(weft_facts *self, const weft_process_group *peers, const char *what, weft_error *err) {
    char *first = NULL, *own = NULL;
    int32_t number = 0, *numbers = NULL;
    weft_status status = WEFT_OK;
    if (fclose(self->file) != 0 || self->failed)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for what ranks compare");
    self->file = NULL;
    status = weft_process_group_agree(peers, status, err);
    if (weft_process_group_is_single(peers) || status != WEFT_OK) goto done;
    numbers = calloc((size_t)peers->world, sizeof *numbers);
    if (numbers == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %d ranks", (int)peers->world);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = share_first(&first, self, peers, err);
    if (status != WEFT_OK) goto done;
    status = list_differences_of(&own, first, self->text, err);
    if (status == WEFT_OK) status = number_of(&number, own, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = peers->gather(peers->context, numbers, number, err);
    if (status == WEFT_OK) status = judge_facts(own, peers, numbers, what, err);
done:
    free(numbers);
    free(first);
    free(own);
    return status;
}
