/* host/config/key_table.c: validates a plugin's key table. */
#include <ctype.h>
#include <stdlib.h>

#include "config/number.h"
#include "config/store.h"

#define MOST_KEYS      512u
#define LONGEST_NAME   40u
#define LONGEST_TEXT   400u
#define LARGEST_STRUCT (1u << 20)

/* Returns the defect of a text; NULL: valid. */
static const char *text_fault(const char *text, bool may_be_empty) {
    size_t n = 0;
    if (text == NULL) return "is missing";
    n = strnlen(text, LONGEST_TEXT + 1);
    if (n > LONGEST_TEXT) return "is longer than 400 bytes";
    if (n == 0 && !may_be_empty) return "is empty";
    if (!weft_text_is_clean(text, n)) return "has control characters or is not UTF-8";
    return NULL;
}

static const char *name_fault(const char *name) {
    const char *fault = text_fault(name, false);
    if (fault != NULL) return fault;
    if (strlen(name) > LONGEST_NAME) return "is longer than 40 letters";
    if (strcmp(name, "plugin") == 0) return "is the host's: [kind] plugin chooses the plugin";
    if (!islower((unsigned char)*name)) return "must begin with a small letter";
    for (const char *p = name; *p != '\0'; p++)
        if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
            return "may only have small letters, digits and _";
    return NULL;
}

/* Checks that all elements of a range have names, and that those of an ENUM differ. */
static bool names_are_sound(const char *range, char separator, bool may_be_empty) {
    const char *rest = *range == '\0' && may_be_empty ? NULL : range, *part = NULL;
    size_t n = 0, n2 = 0;
    while (weft_part_next(&rest, separator, &part, &n)) {
        const char *rest2 = may_be_empty ? NULL : rest, *part2 = NULL;
        if (n == 0) return false;
        while (weft_part_next(&rest2, separator, &part2, &n2))
            if (n == n2 && memcmp(part, part2, n) == 0) return false;
    }
    return true;
}

static bool range_is_sound(const weft_key *row) {
    weft_bounds range;
    switch (row->type) {
    case WEFT_KEY_I64:
    case WEFT_KEY_F64: return weft_bounds_parse(&range, row->range, row->type);
    case WEFT_KEY_ENUM: return names_are_sound(row->range, ',', false);
    case WEFT_KEY_STR:
    case WEFT_KEY_PATH: return names_are_sound(row->range, '|', true);
    default: return *row->range == '\0';
    }
}

static weft_status check_default(const weft_key *row, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    weft_value value = {{0}, NULL};
    weft_status status = WEFT_OK;
    bool relative = false;
    if (row->fallback == NULL) return WEFT_OK;
    status = weft_value_parse(&value, row, row->fallback, "/", &why);
    /* Words and numbers are unchanged by parsing; any other changed text was a relative path. */
    relative = status == WEFT_OK && row->type == WEFT_KEY_PATH && *row->fallback != '/' &&
               strcmp(value.text, row->fallback) != 0;
    weft_value_free(&value);
    if (relative)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "its default '%s' is a relative path without a base directory: it must be empty, "
                              "absolute or a value of its range",
                              row->fallback);
    if (status == WEFT_OK) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "its default '%s' %s", row->fallback, why.text);
}

static weft_status check_row(const weft_key *row, uint32_t stride, uint64_t config_size, weft_error *err) {
    static const char *const texts[] = {"name", "help", "range", "unit", "default"};
    const char *faults[5];
    if (!WEFT_WHOLE(row, weft_key) || row->struct_size > stride)
        return weft_error_set(err, WEFT_E_PLUGIN, "its struct_size is %u bytes, and the stride of the rows is %u",
                              row->struct_size, stride);
    faults[0] = name_fault(row->name);
    faults[1] = text_fault(row->help, false);
    faults[2] = text_fault(row->range, true);
    faults[3] = text_fault(row->unit, true);
    faults[4] = row->fallback == NULL ? NULL : text_fault(row->fallback, true);
    for (size_t i = 0; i < 5; i++)
        if (faults[i] != NULL) return weft_error_set(err, WEFT_E_PLUGIN, "its %s %s", texts[i], faults[i]);
    if ((row->flags & ~(WEFT_SAME | WEFT_SECRET | WEFT_REMOVED | WEFT_PATHS)) != 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "it has flags that do not exist (0x%x)", row->flags);
    if (row->type < WEFT_KEY_I64 || row->type > WEFT_KEY_LIST)
        return weft_error_set(err, WEFT_E_PLUGIN, "its type %d does not exist", row->type);
    if ((row->flags & WEFT_PATHS) != 0 &&
        (row->type != WEFT_KEY_LIST || (row->fallback != NULL && *row->fallback != '\0')))
        return weft_error_set(err, WEFT_E_PLUGIN, "WEFT_PATHS requires a LIST that is required or empty by default");
    if (row->offset % 8 != 0 || (uint64_t)row->offset + 8 > config_size)
        return weft_error_set(err, WEFT_E_PLUGIN, "its offset %u is not that of 8 aligned bytes in a struct of %llu",
                              row->offset, (unsigned long long)config_size);
    if ((row->flags & WEFT_REMOVED) != 0) return WEFT_OK; /* it never has a value */
    if (!range_is_sound(row)) return weft_error_set(err, WEFT_E_PLUGIN, "its range '%s' cannot be read", row->range);
    return check_default(row, err);
}

/* Checks against the previous rows, which are valid. */
static weft_status check_apart(const weft_key *keys, uint64_t i, uint32_t stride, weft_error *err) {
    const weft_key *row = weft_key_row(keys, i, stride);
    for (uint64_t k = 0; k < i; k++) {
        const weft_key *other = weft_key_row(keys, k, stride);
        if (strcmp(row->name, other->name) == 0)
            return weft_error_set(err, WEFT_E_PLUGIN, "row %llu has the same name", (unsigned long long)k);
        if (row->offset == other->offset && ((row->flags | other->flags) & WEFT_REMOVED) == 0)
            return weft_error_set(err, WEFT_E_PLUGIN, "it fills the same bytes as %s", other->name);
    }
    return WEFT_OK;
}

weft_status weft_key_table_check(const weft_key *keys, uint64_t n, uint32_t stride, uint64_t config_size,
                                 weft_error *err) {
    if (n == 0) return WEFT_OK;
    if (keys == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "the key table has %llu rows, and is NULL", (unsigned long long)n);
    if (stride < offsetof(weft_key, help) + sizeof(const char *) || stride % 8 != 0 || stride > 4096)
        return weft_error_set(err, WEFT_E_PLUGIN, "the key table's stride of %u bytes is invalid", stride);
    if (n > MOST_KEYS || config_size > LARGEST_STRUCT)
        return weft_error_set(err, WEFT_E_PLUGIN, "a key table of %llu rows for a struct of %llu bytes is no key table",
                              (unsigned long long)n, (unsigned long long)config_size);
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        weft_status status = check_row(row, stride, config_size, err);
        if (status == WEFT_OK) status = check_apart(keys, i, stride, err);
        if (status != WEFT_OK) {
            const bool shown = text_fault(row->name, false) == NULL && strlen(row->name) <= LONGEST_NAME;
            const char *name = shown ? row->name : "(a name that cannot be printed)";
            return weft_error_prefix(err, "the key table's row %llu, %s: ", (unsigned long long)i, name);
        }
    }
    return WEFT_OK;
}
