/* host/run/validate_optimizer.c: see validate_optimizer.h. */
#include "run/validate_optimizer.h"

#include "plugin/enter.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>

/* A state is a file of a checkpoint, beside the masters. */
static weft_status judge_name(const char *name, const char *id, weft_error *err) {
    if (name != NULL && name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strcmp(name, "master") != 0 &&
        strlen(name) < 200)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "optimizer %s: a state called '%s' cannot be saved; a plain name other than 'master' is needed", id,
        name == NULL ? "" : name);
}

static weft_status judge_slot(const weft_state_slot *slots, int64_t i, const char *id, weft_error *err) {
    const weft_state_slot *slot = &slots[i];
    weft_status status = judge_name(slot->name, id, err);
    if (status != WEFT_OK) return status;
    for (int64_t before = 0; before < i; before++)
        if (strcmp(slots[before].name, slot->name) == 0)
            return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares two states called '%s'", id, slot->name);
    if (slot->dtype != WEFT_F32 && slot->dtype != WEFT_BF16)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "optimizer %s declares its state %s as %s; an optimizer declares fp32 or bf16, and "
                              "[optimizer] states = 8bit makes blocks of it",
                              id, slot->name, weft_dtype_name(slot->dtype));
    if (slot->block != 1 || slot->block_bytes != weft_dtype_bytes(slot->dtype))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s declares its state %s in blocks of %d elements and %lld bytes; of %s they "
                              "have 1 and %lld",
                              id, slot->name, (int)slot->block, (long long)slot->block_bytes,
                              weft_dtype_name(slot->dtype), (long long)weft_dtype_bytes(slot->dtype));
    if ((slot->flags & ~(WEFT_STATE_NOT_NEGATIVE | WEFT_STATE_AS_DECLARED)) != 0)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "optimizer %s says of its state %s by flags 0x%x what this host does not know", id,
                              slot->name, (unsigned)slot->flags);
    return WEFT_OK;
}

/* Rows lie `stride` bytes apart, as the plugin was compiled. */
static weft_status take_slots(weft_optimizer_facts *out, const weft_state_slot *rows, uint32_t stride, const char *id,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    if (out->n_states < 0 || out->n_states > WEFT_MAX_STATES)
        return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s declares %lld states; at most %d are possible", id,
                              (long long)out->n_states, WEFT_MAX_STATES);
    if (out->n_states > 0 && (rows == NULL || stride < WEFT_SIZE_1_0(weft_state_slot) || stride % 8 != 0))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s gives %lld states %u bytes apart; they lie sizeof(weft_state_slot) apart",
                              id, (long long)out->n_states, (unsigned)stride);
    for (int64_t i = 0; i < out->n_states && status == WEFT_OK; i++) {
        const weft_state_slot *row = (const weft_state_slot *)(const void *)((const char *)rows + i * stride);
        if (!WEFT_WHOLE(row, weft_state_slot) || row->struct_size > stride)
            return weft_error_set(
                err, WEFT_E_PLUGIN,
                "optimizer %s declares its state %lld with struct_size %u; at least %u and at most the "
                "%u from one to the next are possible",
                id, (long long)i, (unsigned)row->struct_size, (unsigned)WEFT_SIZE_1_0(weft_state_slot),
                (unsigned)stride);
        if (!weft_struct_take(&out->states[i], sizeof out->states[i], row))
            return weft_error_set(err, WEFT_E_UNSUPPORTED,
                                  "optimizer %s says something of its state %lld behind the %zu bytes that this host "
                                  "knows; build it with this host's headers, or use a later host",
                                  id, (long long)i, sizeof *row);
        status = judge_slot(out->states, i, id, err);
    }
    return status;
}

static weft_status judge_update(const weft_elementwise *update, int64_t n_states, const char *id, weft_error *err) {
    if (update == NULL || !WEFT_WHOLE(update, weft_elementwise) || update->name == NULL || update->hp_name == NULL ||
        update->hp_fields == NULL || update->body == NULL || update->cpu == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "optimizer %s gives no whole update: WEFT_ELEMENTWISE makes one", id);
    if (update->n_states != n_states)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s declares %lld states, and its update %s has %lld: they are the same", id,
                              (long long)n_states, update->name, (long long)update->n_states);
    return WEFT_OK;
}

/* ---- the members of hp ---- */

enum { MOST_WORD = 32 };

/* Bytes of a type's word: 4, 8, 0 for a qualifier; -1: it is not known here. */
static int32_t word_bytes(const char *word) {
    static const struct {
        const char *word;
        int32_t bytes;
    } words[] = {{"float", 4},    {"int", 4},   {"unsigned", 4}, {"signed", 4},   {"int32_t", 4}, {"uint32_t", 4},
                 {"double", 8},   {"long", 8},  {"int64_t", 8},  {"uint64_t", 8}, {"size_t", 8},  {"ptrdiff_t", 8},
                 {"intptr_t", 8}, {"const", 0}, {"volatile", 0}, {"uintptr_t", 8}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) return words[i].bytes;
    return -1;
}

/* Reads a word at *at into out; false: there is none, or it is too long. */
static bool take_word(char out[MOST_WORD], const char **at) {
    size_t n = 0;
    *at += strspn(*at, " \t\n");
    while (isalnum((unsigned char)(*at)[n]) || (*at)[n] == '_') n++;
    if (n == 0 || n >= MOST_WORD) return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    *at += strspn(*at, " \t\n");
    return true;
}

/* Reads "float a, b[4];" at *at. Adds its members to *n; false: it has another form. *wide: a type of 8 bytes. */
static bool take_members(int64_t *n, bool *wide, const char **at) {
    char word[MOST_WORD];
    int32_t bytes = 0, type = 0;
    const char *before = *at;
    while (before = *at, take_word(word, at) && (bytes = word_bytes(word)) >= 0) type = bytes > type ? bytes : type;
    if (type == 0 || word_bytes(word) >= 0) {
        *wide = *wide || type == 8 || **at == '*';
        return false;
    }
    *wide = *wide || type == 8;
    *at = before;
    while (take_word(word, at)) {
        int64_t elements = 1;
        char *end = NULL;
        if (**at == '[') {
            elements = strtoll(*at + 1, &end, 10);
            if (elements < 1 || *end != ']') return false;
            *at = end + 1 + strspn(end + 1, " \t\n");
        }
        *n += elements;
        if (**at == ';') return true;
        if (*(*at)++ != ',') return false;
    }
    return false;
}

/* The members are text, which the struct is made of. What this cannot read is left to the guard behind hp, in the run.
 */
static weft_status judge_hp(int64_t bytes, const weft_elementwise *update, const char *id, weft_error *err) {
    const char *at = update->hp_fields;
    int64_t members = 0;
    bool wide = false, read = true;
    while (read && *(at += strspn(at, " \t\n;")) != '\0') read = take_members(&members, &wide, &at);
    if (wide)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "optimizer %s has a member of 8 bytes in its hp, %s: \"%.200s\". Members are numbers of 4 "
            "bytes: float, int32_t or uint32_t",
            id, update->hp_name, update->hp_fields);
    if (read && bytes < 4 * members)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "optimizer %s says in hp_size that its hp has %lld bytes, and %s has %lld members of 4 "
                              "bytes, \"%.200s\": return (int64_t)sizeof(%s)",
                              id, (long long)bytes, update->hp_name, (long long)members, update->hp_fields,
                              update->hp_name);
    return WEFT_OK;
}

weft_status weft_optimizer_validate(weft_optimizer_facts *out, const weft_optimizer_plugin *plugin,
                                    const weft_optimizer *optimizer, const char *id, weft_error *err) {
    uint32_t stride = 0;
    const weft_state_slot *rows = NULL;
    const weft_elementwise *update = NULL;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    WEFT_PLUGIN_ASK(rows, plugin, states, optimizer, &out->n_states, &stride);
    WEFT_PLUGIN_ASK(out->hp_bytes, plugin, hp_size, optimizer);
    WEFT_PLUGIN_ASK(update, plugin, update, optimizer);
    status = weft_plugin_take_failure(err);
    if (status == WEFT_OK) status = take_slots(out, rows, stride, id, err);
    if (status == WEFT_OK && (out->hp_bytes < 4 || out->hp_bytes > WEFT_MAX_HP || out->hp_bytes % 4 != 0))
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "optimizer %s declares %lld bytes of hp; 4 to %d are possible, in numbers of 4", id,
                                (long long)out->hp_bytes, WEFT_MAX_HP);
    if (status == WEFT_OK) status = judge_update(update, out->n_states, id, err);
    return status == WEFT_OK ? judge_hp(out->hp_bytes, update, id, err) : status;
}
