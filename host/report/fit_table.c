/* host/report/fit_table.c: see fit_table.h. */
#include "report/fit_table.h"

#include "report/fit_words.h"

enum { COLUMNS = 80, BYTES = 12 };

/* ---- changes ---- */

/* Prints a change's bytes, and its words on as many lines as necessary. */
static void print_change(const weft_fit_change *change, int width, FILE *to) {
    char bytes[WEFT_UNIT_SIZE], word[WEFT_TRIAL_KEY_SIZE];
    const int begin = width + BYTES + 1;
    int at = begin;
    (void)fprintf(to, "%*s ", begin - 1, weft_unit_bytes(bytes, change->need.bytes.total));
    for (int32_t i = 0; weft_fit_change_word(word, sizeof word, change, i); i++) {
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
    (void)weft_fit_room_bytes(room, &fit->room);
    if (weft_fit_is_a_ranks(fit)) (void)fprintf(to, "the %s of rank %d's device", room, (int)fit->need.first);
    else (void)fprintf(to, "%s's %s", weft_available_memory_owner(&fit->room), room);
    if (!fit->fits || fit->world > 1) /* else it is printed above */
        (void)fprintf(to, ": %s%s", weft_unit_bytes(need, fit->need.bytes.total), weft_fit_together(ranks, fit));
    (void)fprintf(to, "; largest: %s\n", weft_fit_largest(fit));
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

/* memory: null if unknown. ranks: that share it. */
json_t *weft_fit_object(const weft_fit *fit) {
    json_t *changes = json_array();
    for (int32_t i = 0; i < fit->changes.n; i++)
        (void)json_array_append_new(changes, change_object(&fit->changes.fitting[i]));
    return json_pack("{s:b, s:o, s:I, s:s, s:I, s:i, s:i, s:s, s:o}", "fits", (int)fit->fits, "memory",
                     fit->room.bytes > 0 ? json_integer(fit->room.bytes) : json_null(), "apart",
                     (json_int_t)fit->room.held, "of", weft_available_memory_owner(&fit->room), "planned",
                     (json_int_t)fit->need.bytes.total, "ranks", (int)fit->need.ranks, "first", (int)fit->need.first,
                     "largest", weft_fit_largest(fit), "changes", changes);
}
