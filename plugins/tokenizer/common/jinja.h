/* jinja.h: the Jinja that chat templates are written in: what one compiles to, and what rendering it takes and gives.
 *
 * A template means here what it means to `transformers`: jinja2 with trim_blocks, lstrip_blocks, `break` and
 * `continue`, raise_exception, strftime_now, its own tojson, and {% generation %}. What is not known is refused with
 * its line.
 *
 * Every byte of a rendered text carries a mark that says where it came from: from the template, or from a value that
 * was given to it. Marks travel with the bytes through every operation (a slice, a strip, a join), so what belongs to
 * whom is known without looking for anything in the text. Templates are other people's: steps, depth, memory and the
 * length of the text are bounded.
 */
#ifndef JINJA_H
#define JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <weft/host.h>

/* A mark: the origin of a byte in the low half. The high half is the number of the {% generation %} block that wrote
 * the byte, from 1; in a template without such blocks it is the number of the message whose turn of a loop wrote the
 * byte, from 1. 0: none. JINJA_LABEL: the byte names a part of the conversation (a role) and may be part of a special
 * token. */
#define JINJA_TEMPLATE     0u
#define JINJA_LABEL        0x80000000u
#define JINJA_ORIGIN(mark) ((mark)&0xffffu)
#define JINJA_BLOCK(mark)  (((mark) & ~JINJA_LABEL) >> 16)
#define JINJA_MOST_ORIGINS 0xffffu
#define JINJA_MOST_BLOCKS  0x7fffu

typedef struct jinja_template jinja_template; /* read-only once it is made: several threads may render at once */

/* name: of messages ("FILE: chat_template"); copied, as the source is. [main] */
weft_status jinja_compile(jinja_template **out, const weft_host *host, const char *name, const char *source, size_t n,
                          weft_error *err);
void jinja_free(jinja_template *self);             /* NULL is fine */
bool jinja_has_blocks(const jinja_template *self); /* {% generation %} */
/* Whether an expression of the template reads a variable of this name; a key of any object: o.key, o['key'] or
 * o.get('key'). The expression may be in a branch that a rendering does not take. */
bool jinja_names_variable(const jinja_template *self, const char *name);
bool jinja_names_key(const jinja_template *self, const char *key);

/* One rendering: variables first, then the text. Its memory lives until jinja_end. [any-thread] */
typedef struct jinja_render jinja_render;
weft_status jinja_begin(jinja_render **out, const jinja_template *self, weft_error *err);
void jinja_end(jinja_render *self); /* NULL is fine */

/* Values to fill variables with; NULL where memory ran out. origin: the mark of the bytes of its texts. Their texts are
 * UTF-8. */
typedef struct jinja_value jinja_value;
typedef struct jinja_list jinja_list;
bool jinja_set_json(jinja_render *self, const char *name, const json_t *value, uint32_t origin);
bool jinja_set_text(jinja_render *self, const char *name, const char *text, size_t n);
bool jinja_set_bool(jinja_render *self, const char *name, bool value);
bool jinja_set_time(jinja_render *self, int64_t seconds); /* of strftime_now; without it, the clock's */

/* A list that is filled element by element: an object from JSON each, with origins by key. */
typedef uint32_t jinja_origin_of(void *context, size_t element, const char *key);
bool jinja_set_objects(jinja_render *self, const char *name, const json_t *array, jinja_origin_of *origin,
                       void *context);

typedef struct jinja_output {
    const char *bytes;
    const uint32_t *marks; /* one per byte */
    size_t n;
} jinja_output;

/* After jinja_run, also one that failed, for an element of jinja_set_objects: whether the template read the value of a
 * key of this element, and whether it compared the value with an equal text of its own. */
bool jinja_has_read(const jinja_render *self, size_t element, const char *key);
bool jinja_has_matched(const jinja_render *self, size_t element, const char *key);
/* Whether a loop went through the characters of the value. */
bool jinja_has_walked(const jinja_render *self, size_t element, const char *key);

/* Once per rendering. WEFT_E_DATA: the template refuses, or asks for what is not known; err says the line. */
weft_status jinja_run(jinja_render *self, jinja_output *out, weft_error *err);

#endif
