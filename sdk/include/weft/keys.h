/* weft/keys.h: declares the configuration keys of a plugin's INI section.
 *
 * A key is written once, in an X-macro list. The list generates the plugin's config struct, the validation of the
 * user's file, the help of `weft plugins describe`, and the defaults. `create` receives a filled struct and needs no
 * parsing.
 *
 *     #define LION_KEYS(K)                                                                       \
 *         K(F64, lr,    "1e-4", "(0,1]", "",  WEFT_SAME, "Step size before the schedule.")       \
 *         K(F64, beta1, "0.9",  "[0,1)", "",  WEFT_SAME, "Interpolation of the update.")
 *     WEFT_KEYS(lion_config, LION_KEYS)
 *
 * defines the struct lion_config { double lr; double beta1; } and the function lion_config_keys().
 *
 * Types and their C types (all 8 bytes, so the struct has no padding):
 *   I64   int64_t       an integer; 4k, 2Ki, 1e6 are allowed
 *   F64   double
 *   BOOL  int64_t       yes/no, true/false, on/off, 1/0
 *   STR   const char *  any text
 *   PATH  const char *  relative to the file that sets it (on the command line: to the working directory);
 *                       made absolute
 *   ENUM  int64_t       one of the comma-separated names in `range`; the value is its index
 *   LIST  const char *  comma-separated names, normalized to "a,b,c"; may be empty
 *
 * `range`: for numbers an interval such as "(0,1]" or "[1,inf)", or "" for any. Words may follow after a bar, as in
 * "[0,inf) | none | auto". `none` and `auto` become WEFT_NONE_* and WEFT_AUTO_*. For STR and PATH: "" or reserved
 * words. A PATH equal to a reserved word is not resolved. With the word `number`, neither is any number; a file with
 * such a name is written "./12". `fallback` NULL: the key is required.
 */
#ifndef WEFT_KEYS_H
#define WEFT_KEYS_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_key_type {
    WEFT_KEY_I64 = 1,
    WEFT_KEY_F64 = 2,
    WEFT_KEY_BOOL = 3,
    WEFT_KEY_STR = 4,
    WEFT_KEY_PATH = 5,
    WEFT_KEY_ENUM = 6,
    WEFT_KEY_LIST = 7
} weft_key_type;

/* Key flags. */
#define WEFT_SAME    1u /* must be identical on all ranks */
#define WEFT_SECRET  2u /* the value is never printed or stored */
#define WEFT_REMOVED 4u /* removed key: setting it is an error with the text of `help` */
#define WEFT_PATHS                                                                                                     \
    8u /* of a LIST: each name is resolved like a PATH; a colon and number at its end are not part of the path */

/* Values of the words of a number key. */
#define WEFT_NONE_I64 INT64_MIN
#define WEFT_AUTO_I64 (INT64_MIN + 1)
#define WEFT_NONE_F64 (-1e300)
#define WEFT_AUTO_F64 (-2e300)

typedef struct weft_key {
    uint32_t struct_size;
    uint32_t flags;
    int32_t type;    /* weft_key_type */
    uint32_t offset; /* of its 8 bytes in the config struct */
    const char *name;
    const char *fallback; /* default in INI syntax; NULL: required */
    const char *range;
    const char *unit; /* "", "steps", "rows", "bytes", ... */
    const char *help; /* one line; required */
} weft_key;

#define WEFT_KEY_CTYPE_I64  int64_t
#define WEFT_KEY_CTYPE_F64  double
#define WEFT_KEY_CTYPE_BOOL int64_t
#define WEFT_KEY_CTYPE_STR  const char *
#define WEFT_KEY_CTYPE_PATH const char *
#define WEFT_KEY_CTYPE_ENUM int64_t
#define WEFT_KEY_CTYPE_LIST const char *

#define WEFT_KEY_FIELD_(type, name, fallback, range, unit, flags, help) WEFT_KEY_CTYPE_##type name;
#define WEFT_KEY_ROW_(type, name, fallback, range, unit, flags, help)                                                  \
    {(uint32_t)sizeof(weft_key),                                                                                       \
     (flags),                                                                                                          \
     WEFT_KEY_##type,                                                                                                  \
     (uint32_t)offsetof(WEFT_KEYS_STRUCT_, name),                                                                      \
     #name,                                                                                                            \
     fallback,                                                                                                         \
     range,                                                                                                            \
     unit,                                                                                                             \
     help},

/* Declares `typedef struct {...} config` and config_keys(), which returns its rows. A plugin with several source files
 * puts WEFT_KEYS_STRUCT into its header and WEFT_KEYS_TABLE into the file with WEFT_PLUGIN. */
#define WEFT_KEYS(config, LIST)                                                                                        \
    WEFT_KEYS_STRUCT(config, LIST)                                                                                     \
    WEFT_KEYS_TABLE(config, LIST)

#define WEFT_KEYS_STRUCT(config, LIST)                                                                                 \
    typedef struct config {                                                                                            \
        LIST(WEFT_KEY_FIELD_)                                                                                          \
    } config;

#define WEFT_KEYS_TABLE(config, LIST)                                                                                  \
    enum { config##_n_keys = 0 LIST(WEFT_KEY_COUNT_) };                                                                \
    static const weft_key *config##_keys(void) {                                                                       \
        typedef config WEFT_KEYS_STRUCT_;                                                                              \
        static const weft_key rows[] = {LIST(WEFT_KEY_ROW_)};                                                          \
        return rows;                                                                                                   \
    }
#define WEFT_KEY_COUNT_(type, name, fallback, range, unit, flags, help) +1

#ifdef __cplusplus
}
#endif
#endif
