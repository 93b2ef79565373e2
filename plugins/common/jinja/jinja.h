/* jinja.h: interpreter for the Jinja of chat templates: compile a template, set variables, render.
 *
 * A template has the semantics of `transformers`: jinja2 with trim_blocks, lstrip_blocks, `break` and `continue`,
 * raise_exception, strftime_now, the tojson of transformers, and {% generation %}. Unknown statements, filters and
 * functions are errors with a line number.
 *
 * Every byte of a rendered text carries a mark that records its origin: the template, or a variable. Every operation
 * (slice, strip, join) moves marks with their bytes, so a caller knows the source of each byte without searching the
 * text.
 *
 * Templates are untrusted input: the interpreter bounds steps, depth, memory and text length.
 *
 * All threads share a template; a rendering belongs to one thread:
 *
 *     jinja_compile(&self, host, "FILE: chat_template", source, n, err);
 *     jinja_begin(&r, self, err);
 *     jinja_set_objects(r, "messages", array, origin_of, context);
 *     jinja_run(r, &output, err);
 *     ...
 *     jinja_end(r);
 *     jinja_free(self);
 */
#ifndef JINJA_H
#define JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <weft/host.h>

/* A mark. Bits 0 to 15 are the origin of a byte: JINJA_TEMPLATE, or the number that the caller set for the variable.
 * Bits 16 to 30 are the number of the {% generation %} block that wrote the byte, from 1. In a template without such
 * blocks they are the number of the message in the loop iteration that wrote the byte, from 1. 0 means no block or
 * message. JINJA_LABEL: the byte is from a name in the conversation (a role) and may be part of a special token. */
#define JINJA_TEMPLATE     0u
#define JINJA_LABEL        0x80000000u
#define JINJA_ORIGIN(mark) ((mark)&0xffffu)
#define JINJA_BLOCK(mark)  (((mark) & ~JINJA_LABEL) >> 16)
#define JINJA_MOST_BLOCKS  0x7fffu

typedef struct jinja_template jinja_template; /* immutable after compilation; several threads may render it */

/* Compiles a template. name: prefix of error messages ("FILE: chat_template"). Copies name and source. [main] */
weft_status jinja_compile(jinja_template **out, const weft_host *host, const char *name, const char *source, size_t n,
                          weft_error *err);
void jinja_free(jinja_template *self);             /* NULL is allowed */
bool jinja_has_blocks(const jinja_template *self); /* {% generation %} */
/* Returns true if an expression of the template reads the variable `name`. Expressions in branches that a rendering
 * skips count too. */
bool jinja_names_variable(const jinja_template *self, const char *name);

/* One rendering: set variables, then call jinja_run. jinja_end frees its memory. [any-thread] */
typedef struct jinja_render jinja_render;
weft_status jinja_begin(jinja_render **out, const jinja_template *self, weft_error *err);
void jinja_end(jinja_render *self); /* NULL is allowed */

/* Set a variable. Return false if memory or a limit is exhausted. origin: mark of the bytes of all strings in the
 * value. Strings must be UTF-8. */
bool jinja_set_json(jinja_render *self, const char *name, const json_t *value, uint32_t origin);
bool jinja_set_text(jinja_render *self, const char *name, const char *text, size_t n);
bool jinja_set_bool(jinja_render *self, const char *name, bool value);
bool jinja_set_time(jinja_render *self, int64_t seconds); /* time of strftime_now; default: the clock */

/* Sets a variable to a list of JSON objects. `origin` returns the mark for each key of each element. */
typedef uint32_t jinja_origin_of(void *context, size_t element, const char *key);
bool jinja_set_objects(jinja_render *self, const char *name, const json_t *array, jinja_origin_of *origin,
                       void *context);

typedef struct jinja_output {
    const char *bytes;
    const uint32_t *marks; /* one per byte */
    size_t n;
} jinja_output;

/* Return true if the template read the value of `key` in element `element` of the jinja_set_objects list, or compared
 * the value with an equal string of the template. May be called after jinja_run, including a failed one. */
bool jinja_has_read(const jinja_render *self, size_t element, const char *key);
bool jinja_has_matched(const jinja_render *self, size_t element, const char *key);
/* Returns true if an object inside the value of `key` has a key with a value that the rendering did not read, and
 * writes its path to `path`: "tool_calls.function.note". optional: keys of the outer objects that need no read; ends
 * with NULL. */
bool jinja_find_unread(const jinja_render *self, size_t element, const char *key, const char *const *optional,
                       char *path, size_t size);
/* Returns true if the rendering read a variable that the caller set. */
bool jinja_has_read_variable(const jinja_render *self, const char *name);
/* Returns true if a loop iterated over the characters of the value. */
bool jinja_has_walked(const jinja_render *self, size_t element, const char *key);

/* Renders the template; call it once per rendering. Fails with WEFT_E_DATA and the line in err if the template raises
 * an exception or uses an unknown feature. */
weft_status jinja_run(jinja_render *self, jinja_output *out, weft_error *err);

#endif
