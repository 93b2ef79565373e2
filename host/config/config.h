/* host/config/config.h: reads an INI file and command-line overrides into typed structs, and records the source of
 * every value.
 *
 *     weft_config *config = NULL;
 *     weft_settings settings;
 *     const char *id = NULL;
 *     weft_config_load(&config, "run.ini", overrides, n_overrides, &err);    reads; no validation yet
 *     weft_settings_load(&settings, config, &err);                           the host's own keys
 *     weft_config_plugin(config, &id, "optimizer", "adamw", &err);           the plugin of a section
 *     weft_config_declare(config, "optimizer", keys, n, stride);             that plugin's keys, by name only
 *     weft_config_unknown(config, "optimizer", &err);                        rejects any other key
 *     weft_config_fill(config, &lion, "optimizer", keys, n, stride, &err);   that plugin's keys
 *     weft_config_finish(config, &err);                                      rejects undeclared keys
 *
 * A section may be filled several times by different key tables: [model] has keys of the host and keys of the plugin. A
 * plugin's keys may also be in a section of its own, [model.llama], which is idle while another plugin is selected. The
 * file's content is never ignored: weft_config_finish rejects each key and section that no table declared.
 *
 * The config owns the strings in the filled structs; they live until weft_config_free. All functions are [main]. */
#ifndef WEFT_HOST_CONFIG_CONFIG_H
#define WEFT_HOST_CONFIG_CONFIG_H

#include <stdbool.h>
#include <weft/keys.h>

typedef struct weft_config weft_config;

/* Flag for the host's own tables: a LIST of name:path elements, each path made absolute. */
#define WEFT_HOST_NAMED 0x10000000u
/* Flag: a key that only applies if the section's plugin offers it; it may be in that plugin's own section too. */
#define WEFT_HOST_OFFERED 0x20000000u
/* Flag: a STR with a range that shows all valid forms for the help; its reader validates it. */
#define WEFT_HOST_FORMS 0x40000000u

/* Reads the file and overrides. path NULL: overrides only. overrides: "section.key=value", the last one of a key wins;
 * the value is literal, including quotes. "!section" discards all earlier values of a section. Messages use path as
 * given. */
weft_status weft_config_load(weft_config **out, const char *path, const char *const *overrides, size_t n_overrides,
                             weft_error *err);
void weft_config_free(weft_config *self); /* NULL is fine */

/* Returns true if the file or an override names the section, with or without keys. */
bool weft_config_has_section(const weft_config *self, const char *section);

/* Rejects a section that is not among these n, nor [KIND.ID] of one of the kinds, with the nearest name. Call it before
 * required keys are checked: a misspelt section appears as a missing one. */
weft_status weft_config_sections(const weft_config *self, const char *const *sections, size_t n,
                                 const char *const *kinds, size_t n_kinds, weft_error *err);

/* Reads `[kind] plugin` into out: an id, or the absolute path of a file if the value has a slash. fallback NULL: the
 * key is required. */
weft_status weft_config_plugin(weft_config *self, const char **out, const char *kind, const char *fallback,
                               weft_error *err);

/* Declares the section's keys without reading them, so that unknown keys are reported before missing ones: a misspelt
 * key appears as a missing one. */
void weft_config_declare(weft_config *self, const char *section, const weft_key *keys, uint64_t n, uint32_t stride);

bool weft_config_is_declared(const weft_config *self, const char *section, const char *key);

/* Rejects a key of the section that no table has declared so far, with the nearest declared key. Reports a misspelt
 * `plugin` first, because other keys may be unknown as a result. */
weft_status weft_config_unknown(const weft_config *self, const char *section, weft_error *err);

/* Returns the key that weft_config_unknown would reject, as the user wrote it, or NULL. */
const char *weft_config_stray(const weft_config *self, const char *section);

/* Rejects a key that is close to a declared, unset one. For a section with an unknown plugin, and therefore unknown
 * keys. */
weft_status weft_config_misspelt(const weft_config *self, const char *section, weft_error *err);

/* ---- sections of one plugin, [strategy.fsdp] ---- */

/* Returns the i-th such section of the kind in the configuration; NULL past the end. Its id follows the dot. */
const char *weft_config_plugin_section(const weft_config *self, const char *kind, size_t i);

/* Selects plugin `id` for `section`: keys declared in [section.id] may be there as well as in [section]. The last
 * override in either section wins. */
void weft_config_choose(weft_config *self, const char *section, const char *id);

/* Selects `section`, for example [adapter.lora], as one of several plugins that are selected together; it is filled
 * separately. */
void weft_config_choose_apart(weft_config *self, const char *section);

/* Rejects a key that the file sets in both. */
weft_status weft_config_doubles(const weft_config *self, const char *section, weft_error *err);

/* Validates the values of an unselected plugin's `section` with these keys and keeps them without effect.
 * weft_config_unknown rejects unknown keys. keys NULL: the plugin cannot be described, so no validation. */
weft_status weft_config_idle(weft_config *self, const char *section, const weft_key *keys, uint64_t n, uint32_t stride,
                             weft_error *err);

/* Fills the struct of an unselected plugin that the selected one wraps, from its section and its defaults. Call it
 * after weft_config_idle of the section, if the user names it. The config owns the strings. */
weft_status weft_config_fill_idle(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                                  uint32_t stride, weft_error *err);

/* ---- values ---- */

/* Returns true if the file or an override sets the key. */
bool weft_config_has_key(const weft_config *self, const char *section, const char *key);

/* Returns true if an override sets the key; subject: "command line: [section] key = value ". */
bool weft_config_overrides(const weft_config *self, const char *section, const char *key, char *subject, size_t size);

/* Returns true if the key of a filled section equals its default, set or not. */
bool weft_config_at_default(const weft_config *self, const char *section, const char *key);

/* Fills out, the struct that the n rows of the table describe; unchanged on error. The table must be valid: the host's
 * tables are, and weft_key_table_check has validated a plugin's. */
weft_status weft_config_fill(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                             uint32_t stride, weft_error *err);

/* Rejects undeclared keys and sections, after all fills. */
weft_status weft_config_finish(const weft_config *self, weft_error *err);

/* Rejects a value by a rule across keys: "run.ini:14: [train] clip = -1 " and the message. The prefix states if the
 * value is a default or unset. key NULL: rejects the section: "run.ini:12: [strategy.fsdp] ". Returns WEFT_E_USER. */
weft_status weft_config_reject(const weft_config *self, const char *section, const char *key, weft_error *err,
                               const char *format, ...) WEFT_PRINTF(5, 6);

/* Adds the source to a plugin's message about its keys: a text that begins with "[section] key " or "key " gets the
 * prefix "run.ini:14: [section] key ". Returns false, with the text unchanged, if it names no key. err may be NULL; its
 * code is kept. */
bool weft_config_locate(const weft_config *self, const char *section, weft_error *err);

/* As weft_config_locate; a text that names no key gets the section's source. */
void weft_config_locate_section(const weft_config *self, const char *section, weft_error *err);

/* Replaces the file at path by the configuration as INI, every filled key with its value and absolute paths. Loading it
 * returns the same values. Secret keys are omitted. */
weft_status weft_config_save_resolved(const weft_config *self, const char *path, weft_error *err);

/* Calls visit(context, "[section] key", value) for each filled key that must be identical on all ranks; secrets are
 * omitted. */
void weft_config_each_same(const weft_config *self, void (*visit)(void *context, const char *key, const char *value),
                           void *context);

/* A value with its source. */
typedef struct weft_config_row {
    char name[160];      /* "train.steps" */
    const char *text;    /* for display: a secret is hidden, and an empty value is "" */
    char source[480];    /* "default", "run.ini:9", "run.ini:9, in [strategy.fsdp]", "command line" */
    const weft_key *key; /* NULL: of an idle plugin that could not be described; value is invalid then */
    const struct weft_value *value;
    bool is_idle; /* of an unselected plugin */
} weft_config_row;

/* Lists every filled key, then every idle one. The rows refer to the configuration; the caller frees the list. */
weft_config_row *weft_config_rows(const weft_config *self, size_t *n);

/* Returns these rows as JSON, as `weft config explain --json` prints them; NULL: a value is not UTF-8. */
struct json_t *weft_config_array(const weft_config *self);

/* Returns a filled key's value for display; NULL: it was not filled. */
const char *weft_config_shown(const weft_config *self, const char *section, const char *key);

/* Validates a plugin's key table: rows inside the struct, aligned and without overlap; legal, unique names; known types
 * and flags; ranges that parse; defaults that parse and are in range; strings present and printable. WEFT_E_PLUGIN with
 * the row's number and name. */
weft_status weft_key_table_check(const weft_key *keys, uint64_t n, uint32_t stride, uint64_t config_size,
                                 weft_error *err);

#endif
