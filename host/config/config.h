/* host/config/config.h: an INI file and the overrides of a command line become typed structs, and every value knows
 * where it came from.
 *
 *     weft_config *config = NULL;
 *     weft_settings settings;
 *     const char *id = NULL;
 *     weft_config_load(&config, "run.ini", overrides, n_overrides, &err);    reads; nothing is judged yet
 *     weft_settings_load(&settings, config, &err);                           the host's own keys
 *     weft_config_plugin(config, &id, "optimizer", "adamw", &err);           which plugin a section asks for
 *     weft_config_declare(config, "optimizer", keys, n, stride, &err);       that plugin's keys, by name alone
 *     weft_config_unknown(config, "optimizer", &err);                        a key that is none of them
 *     weft_config_fill(config, &lion, "optimizer", keys, n, stride, &err);   that plugin's keys
 *     weft_config_finish(config, &err);                                      what nobody declared is an error
 *
 * A section may be filled several times by different key tables: [model] holds keys of the host and keys of the plugin.
 * A plugin's keys may also stand in a section of its own, [model.llama], which is idle while another one is chosen.
 * What is in a file is never ignored: weft_config_finish refuses each key and section that no table declared.
 *
 * Texts that the filled structs point to belong to the config and live until weft_config_free. All functions are
 * [main].
 */
#ifndef WEFT_HOST_CONFIG_CONFIG_H
#define WEFT_HOST_CONFIG_CONFIG_H

#include <stdbool.h>
#include <weft/keys.h>

typedef struct weft_config weft_config;

/* For the host's own tables: a LIST whose elements are name:path, of which each path is made absolute. */
#define WEFT_HOST_NAMED 0x10000000u
/* ... a key that counts only where the section's plugin offers it; it may stand in that plugin's own section too. */
#define WEFT_HOST_OFFERED 0x20000000u
/* ... a STR whose range shows every form that it may have, for the help; what reads it judges. */
#define WEFT_HOST_FORMS 0x40000000u

/* path NULL: no file, overrides alone. overrides: "section.key=value", the last one of a key counts; the value is taken
 * as it is, quotes included. "!section" forgets what was said of a section before it. name of the file in messages:
 * path as given. */
weft_status weft_config_load(weft_config **out, const char *path, const char *const *overrides, size_t n_overrides,
                             weft_error *err);
void weft_config_free(weft_config *self); /* NULL is fine */

/* True if the file or an override names the section, with keys or without. */
bool weft_config_has_section(const weft_config *self, const char *section);

/* Refuses a section that is none of these n, nor [KIND.ID] of one of the kinds, with the nearest of them. To be asked
 * before keys are missed: a misspelt section is one that is missing. */
weft_status weft_config_sections(const weft_config *self, const char *const *sections, size_t n,
                                 const char *const *kinds, size_t n_kinds, weft_error *err);

/* out: the value of `[kind] plugin`: an id, or the absolute path of a file where the value has a slash. fallback NULL:
 * it must be given. */
weft_status weft_config_plugin(weft_config *self, const char **out, const char *kind, const char *fallback,
                               weft_error *err);

/* Notes that the section has these keys, and reads none of them. With it unknown keys can be told before any key is
 * missed: a misspelt key is one that is missing. */
weft_status weft_config_declare(weft_config *self, const char *section, const weft_key *keys, uint64_t n,
                                uint32_t stride, weft_error *err);

bool weft_config_is_declared(const weft_config *self, const char *section, const char *key);

/* Refuses a key of the section that no table declared so far, with the nearest of those that one did. A misspelt
 * `plugin` is told first: other keys may be unknown because of it. */
weft_status weft_config_unknown(const weft_config *self, const char *section, weft_error *err);

/* The key that it would refuse, as the user wrote it; NULL: none. */
const char *weft_config_stray(const weft_config *self, const char *section);

/* For a section whose plugin is not known, nor what keys it has: refuses a key that is close to a declared one which
 * is not set. */
weft_status weft_config_misspelt(const weft_config *self, const char *section, weft_error *err);

/* ---- sections of one plugin, [strategy.fsdp] ---- */

/* The i-th such section of the kind that the user names; NULL past the end. Its id stands behind the dot. */
const char *weft_config_plugin_section(const weft_config *self, const char *kind, size_t i);

/* The chosen plugin of `section` is `id`: keys that are declared in [section.id] may stand there as well as in
 * [section]. Of an override in either the last one counts. */
weft_status weft_config_choose(weft_config *self, const char *section, const char *id, weft_error *err);

/* `section`, [adapter.lora], is that of one of several that are chosen together: it is filled by itself. */
void weft_config_choose_apart(weft_config *self, const char *section);

/* Refuses a key that the file sets in both. */
weft_status weft_config_doubles(const weft_config *self, const char *section, weft_error *err);

/* `section` is that of a plugin which is not chosen: its values are judged by these keys and kept, without effect. An
 * unknown key is weft_config_unknown's to refuse. keys NULL: the plugin cannot be asked, and nothing is judged. */
weft_status weft_config_idle(weft_config *self, const char *section, const weft_key *keys, uint64_t n, uint32_t stride,
                             weft_error *err);

/* The struct of a plugin that is used although it is not chosen, as the chosen one wraps it: what its section says,
 * and defaults. After weft_config_idle of the section, if the user names it; what texts point to is the config's. */
weft_status weft_config_fill_idle(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                                  uint32_t stride, weft_error *err);

/* From here on it is as if the user did not set the key, in this very section, to this value. */
void weft_config_pass_over(weft_config *self, const char *section, const char *key, const char *value);

/* ---- values ---- */

/* True if the file or an override sets the key. */
bool weft_config_has_key(const weft_config *self, const char *section, const char *key);

/* True if an override sets the key; subject: "command line: [section] key = value ". */
bool weft_config_overrides(const weft_config *self, const char *section, const char *key, char *subject, size_t size);

/* True if the key of a filled section has the value of its default, set or not. */
bool weft_config_at_default(const weft_config *self, const char *section, const weft_key *key);

/* out: the struct that the n rows of the table describe; untouched on error. The table must be sound: the host's are,
 * and weft_key_table_check has judged a plugin's. */
weft_status weft_config_fill(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                             uint32_t stride, weft_error *err);

/* After all fills. */
weft_status weft_config_finish(const weft_config *self, weft_error *err);

/* For rules across keys: "run.ini:14: [train] clip = -1 " and then the sentence; where the value is a default or unset,
 * that is said instead. Returns WEFT_E_USER. */
weft_status weft_config_reject(const weft_config *self, const char *section, const char *key, weft_error *err,
                               const char *format, ...) WEFT_PRINTF(5, 6);

/* The same of a section: "run.ini:12: [strategy.fsdp] " and the sentence. */
weft_status weft_config_reject_section(const weft_config *self, const char *section, weft_error *err,
                                       const char *format, ...) WEFT_PRINTF(4, 5);

/* For what a plugin says of its keys: where the text begins with "[section] key " or "key ", the key's place gets in
 * front: "run.ini:14: [section] key ". False: it names no key, and stays as it is. err may be NULL; its code stays. */
bool weft_config_locate(const weft_config *self, const char *section, weft_error *err);

/* The same; a text that names no key gets the section's place. */
void weft_config_locate_section(const weft_config *self, const char *section, weft_error *err);

/* The file's name as given, or "command line" where there is none. */
const char *weft_config_name(const weft_config *self);

/* The configuration as INI, every filled key with its value and paths absolute: loaded again it gives the same values.
 * Secret keys are left out. The second form replaces the file at path in one step. */
weft_status weft_config_write_resolved(const weft_config *self, FILE *file, weft_error *err);
weft_status weft_config_save_resolved(const weft_config *self, const char *path, weft_error *err);

/* visit(context, "[section] key", value) for each filled key that must be alike on all ranks; secrets are left out. */
void weft_config_each_same(const weft_config *self, void (*visit)(void *context, const char *key, const char *value),
                           void *context);

/* section.key, value and source (default, file:line, command line) of every filled key: an aligned table, or with json
 * an array of objects. A secret's value is not shown. */
weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err);

/* A filled key's value as it is shown to people; NULL: it was not filled. */
const char *weft_config_shown(const weft_config *self, const char *section, const char *key);

/* Judges a plugin's key table: rows inside the struct, aligned and apart; legal, unique names; known types and flags;
 * ranges that parse; defaults that parse and lie in their own range; texts that are there and are printable.
 * WEFT_E_PLUGIN with the row's number and name. */
weft_status weft_key_table_check(const weft_key *keys, uint64_t n, uint32_t stride, uint64_t config_size,
                                 weft_error *err);

/* Help of a key table that is sound: an aligned line per key, and its help below where the line would get long. */
void weft_key_table_print(const weft_key *keys, uint64_t n, uint32_t stride, FILE *file);

#endif
