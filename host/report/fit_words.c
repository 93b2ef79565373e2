/* host/report/fit_words.c: see fit_words.h. */
#include "report/fit_words.h"

#include "base/words.h"

const char *weft_fit_together(char out[32], const weft_fit *fit) {
    *out = '\0';
    if (fit->need.ranks > 1) (void)snprintf(out, 32, " of %d ranks", (int)fit->need.ranks);
    return out;
}

bool weft_fit_is_a_ranks(const weft_fit *fit) {
    return fit->world > 1 && !fit->room.shared;
}

const char *weft_fit_owner(char out[48], const weft_fit *fit) {
    if (weft_fit_is_a_ranks(fit)) (void)snprintf(out, 48, "rank %d's device", (int)fit->need.first);
    else (void)snprintf(out, 48, "%s", weft_available_memory_owner(&fit->room));
    return out;
}

const char *weft_fit_room_bytes(char out[WEFT_UNIT_SIZE], const weft_available_memory *room) {
    return weft_unit_bytes(out, room->bytes == 1 ? 0 : room->bytes);
}

const char *weft_fit_largest(const weft_fit *fit) {
    return weft_memory_category_name(weft_required_memory_largest(&fit->need));
}

bool weft_fit_change_word(char *out, size_t size, const weft_fit_change *change, int32_t i) {
    if (i > change->n_keys || (i == change->n_keys && !change->moves)) return false;
    if (i < change->n_keys) (void)snprintf(out, size, "%s", change->keys[i]);
    else (void)snprintf(out, size, "--ranks %d", (int)change->ranks);
    if (i == change->n_keys && change->nodes > 1) weft_words_append(out, size, " on %d machines", (int)change->nodes);
    return true;
}

static void append_change(char *text, size_t size, const weft_fit_change *change) {
    char bytes[WEFT_UNIT_SIZE], word[WEFT_TRIAL_KEY_SIZE];
    for (int32_t i = 0; weft_fit_change_word(word, sizeof word, change, i); i++)
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
                          weft_unit_bytes(need, fit->need.bytes.total), weft_fit_together(ranks, fit),
                          weft_unit_bytes(most, fit->need.bytes.category[weft_required_memory_largest(&fit->need)]),
                          weft_fit_largest(fit), weft_fit_owner(owner, fit), weft_fit_room_bytes(room, &fit->room),
                          apart, what);
}

void weft_fit_warn(const weft_fit *fit, const weft_host *host) {
    char free_now[WEFT_UNIT_SIZE], need[WEFT_UNIT_SIZE], room[WEFT_UNIT_SIZE], owner[48];
    if (!fit->fits || !weft_required_memory_is_tight(&fit->need, &fit->room)) return;
    weft_log(host, WEFT_LOG_WARN,
             "%s are planned, and of the %s of %s only %s are free now: the others are in use, and the run may be "
             "ended when it takes more",
             weft_unit_bytes(need, fit->need.bytes.total), weft_unit_bytes(room, fit->room.bytes),
             weft_fit_owner(owner, fit), weft_unit_bytes(free_now, fit->room.free));
}
