/* host/report/fit_table.c: see fit_table.h. */
#include "report/fit_table.h"

#include "base/units.h"
#include "base/words.h"

enum { COLUMNS = 80, BYTES = 12 };

/* " of 4 ranks": who wants it together; "": one rank. */
static const char *together(char out[32], const weft_fit *fit) {
    *out = '\0';
    if (fit->need.ranks > 1) (void)snprintf(out, 32, " of %d ranks", (int)fit->need.ranks);
    return out;
}

/* Of several ranks each has a device of its own, or a part of one: the fullest is told by its rank. */
static bool is_a_ranks(const weft_fit *fit) {
    return fit->world > 1 && !fit->room.shared;
}

/* "rank 1's device" has them; in front of a verb. */
static const char *whose(char out[48], const weft_fit *fit) {
    if (is_a_ranks(fit)) (void)snprintf(out, 48, "rank %d's device", (int)fit->need.first);
    else (void)snprintf(out, 48, "%s", weft_room_whose(&fit->room));
    return out;
}

/* Its bytes; a room of which others have all is given as one byte. */
static const char *room_bytes(char out[WEFT_UNIT_SIZE], const weft_room *room) {
    return weft_unit_bytes(out, room->bytes == 1 ? 0 : room->bytes);
}

static const char *largest_name(const weft_fit *fit) {
    return weft_memory_category_name(weft_need_largest(&fit->need));
}

/* ---- changes ---- */

/* The i-th of the words that a change consists of, as they are typed: its keys, and its ranks where those are others.
 * False: it has fewer. */
static bool change_word(char *out, size_t size, const weft_fit_change *change, int32_t i) {
    if (i > change->n_keys || (i == change->n_keys && !change->moves)) return false;
    if (i < change->n_keys) (void)snprintf(out, size, "%s", change->keys[i]);
    else (void)snprintf(out, size, "--ranks %d", (int)change->ranks);
    if (i == change->n_keys && change->nodes > 1) weft_words_append(out, size, " on %d machines", (int)change->nodes);
    return true;
}

/* Its bytes, and its words in as many lines as they need. */
static void print_change(const weft_fit_change *change, int width, FILE *to) {
    char bytes[WEFT_UNIT_SIZE], word[WEFT_TRIAL_KEY_SIZE];
    const int begin = width + BYTES + 1;
    int at = begin;
    (void)fprintf(to, "%*s ", begin - 1, weft_unit_bytes(bytes, change->need.bytes.total));
    for (int32_t i = 0; change_word(word, sizeof word, change, i); i++) {
        if (i > 0 && at + 1 + (int)strlen(word) > COLUMNS) {
            (void)fprintf(to, "\n%*s", begin, "");
            at = begin;
        }
        at += fprintf(to, " %s", word);
    }
    (void)fputc('\n', to);
}

static void print_changes(const weft_fit *fit, int width, FILE *to) {
    const weft_fit_changes *changes = &fit->changes;
    if (changes->n > 0) {
        (void)fprintf(to, "%*s%s would fit, behind the same command:\n", width, "",
                      changes->n > 1 ? "each of these" : "this");
        for (int32_t i = 0; i < changes->n; i++) print_change(&changes->fitting[i], width, to);
    } else if (changes->least.need.ranks > 0) {
        (void)fprintf(to, "%*snothing that was tried would fit; the least of it is\n", width, "");
        print_change(&changes->least, width, to);
    }
}

void weft_fit_print(const weft_fit *fit, int width, FILE *to) {
    char room[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], ranks[32];
    if (fit->room.bytes == 0) return;
    if (fit->fits) (void)fprintf(to, "%-*s", width, "fits");
    else (void)fprintf(to, "does not fit ");
    (void)room_bytes(room, &fit->room);
    if (is_a_ranks(fit)) (void)fprintf(to, "the %s of rank %d's device", room, (int)fit->need.first);
    else (void)fprintf(to, "%s's %s", weft_room_whose(&fit->room), room);
    if (!fit->fits || fit->world > 1) /* else it stands above */
        (void)fprintf(to, ": %s%s", weft_unit_bytes(need, fit->need.bytes.total), together(ranks, fit));
    (void)fprintf(to, "; largest: %s\n", largest_name(fit));
    if (fit->room.held > 0)
        (void)fprintf(to, "%-*sthe device's other %s are its context's and its libraries'\n", width, "apart",
                      weft_unit_bytes(room, fit->room.held));
    if (!fit->fits) print_changes(fit, width, to);
}

/* ---- the object ---- */

static json_t *change_object(const weft_fit_change *change) {
    json_t *set = json_array();
    for (int32_t i = 0; i < change->n_keys; i++) (void)json_array_append_new(set, json_string(change->keys[i]));
    return json_pack("{s:o, s:i, s:i, s:I}", "set", set, "ranks", (int)change->ranks, "nodes", (int)change->nodes,
                     "planned", (json_int_t)change->need.bytes.total);
}

/* memory: null where nobody knows. ranks: that share it. */
json_t *weft_fit_object(const weft_fit *fit) {
    json_t *changes = json_array();
    for (int32_t i = 0; i < fit->changes.n; i++)
        (void)json_array_append_new(changes, change_object(&fit->changes.fitting[i]));
    return json_pack("{s:b, s:o, s:I, s:s, s:I, s:i, s:i, s:s, s:o}", "fits", (int)fit->fits, "memory",
                     fit->room.bytes > 0 ? json_integer(fit->room.bytes) : json_null(), "apart",
                     (json_int_t)fit->room.held, "of", weft_room_whose(&fit->room), "planned",
                     (json_int_t)fit->need.bytes.total, "ranks", (int)fit->need.ranks, "first", (int)fit->need.first,
                     "largest", largest_name(fit), "changes", changes);
}

/* ---- sentences ---- */

static void append_change(char *text, size_t size, const weft_fit_change *change) {
    char bytes[WEFT_UNIT_SIZE], word[WEFT_TRIAL_KEY_SIZE];
    for (int32_t i = 0; change_word(word, sizeof word, change, i); i++)
        weft_words_append(text, size, "%s%s", i > 0 ? " " : "", word);
    weft_words_append(text, size, " (%s)", weft_unit_bytes(bytes, change->need.bytes.total));
}

weft_status weft_fit_refuse(const weft_fit *fit, weft_error *err) {
    char room[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], most[WEFT_UNIT_SIZE], ranks[32], what[1200] = "", apart[80] = "",
                                                                                      owner[48];
    const weft_fit_changes *changes = &fit->changes;
    for (int32_t i = 0; i < changes->n; i++) {
        weft_words_append(what, sizeof what, "%s", i == 0 ? "It would fit with " : ", or with ");
        append_change(what, sizeof what, &changes->fitting[i]);
    }
    if (changes->n == 0)
        weft_words_append(what, sizeof what,
                          "No change that was tried is enough: take a smaller model or [data] "
                          "context, or a larger machine");
    if (fit->room.held > 0)
        (void)snprintf(apart, sizeof apart, " beside the %s of its context and libraries",
                       weft_unit_bytes(room, fit->room.held));
    return weft_error_set(err, WEFT_E_MEMORY,
                          "%s%s are planned, %s of it %s, and %s has %s%s: nothing was started. %s; --no-fit starts it "
                          "as it is",
                          weft_unit_bytes(need, fit->need.bytes.total), together(ranks, fit),
                          weft_unit_bytes(most, fit->need.bytes.category[weft_need_largest(&fit->need)]),
                          largest_name(fit), whose(owner, fit), room_bytes(room, &fit->room), apart, what);
}

void weft_fit_warn(const weft_fit *fit, const weft_host *host) {
    char free_now[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], room[WEFT_UNIT_SIZE], owner[48];
    if (!fit->fits || !weft_need_is_tight(&fit->need, &fit->room)) return;
    weft_log(host, WEFT_LOG_WARN,
             "%s are planned, and of the %s of %s only %s are free now: the others are in use, and the run may be "
             "ended when it takes more",
             weft_unit_bytes(need, fit->need.bytes.total), weft_unit_bytes(room, fit->room.bytes), whose(owner, fit),
             weft_unit_bytes(free_now, fit->room.free));
}
