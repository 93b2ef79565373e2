/* The Jinja engine: texts equal those of jinja2 as configured by transformers, over the conversations in golden/chat;
 * errors have a line; resources are bounded; marks move with their bytes. */
#include "golden.h"
#include "suite.h"

#include "base/text.h"
#include "jinja.h"
#include "plugin/services.h"

#include <check.h>
#include <stdlib.h>

static weft_error err = WEFT_ERROR_INIT;

enum { MOST_TEMPLATES = 32 };

static uint32_t fnv(const char *bytes, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 1099511628211u;
    return (uint32_t)(h >> 32);
}

static uint32_t by_message(void *context, size_t i, const char *key) {
    (void)context;
    return strcmp(key, "role") == 0 ? 1u : (uint32_t)i + 2u;
}

static jinja_template *compiled(const char *source) {
    jinja_template *out = NULL;
    ck_assert_msg(jinja_compile(&out, weft_services(), "T", source, strlen(source), &err) == WEFT_OK, "%s", err.text);
    return out;
}

static weft_status render(jinja_render **out, jinja_output *text, const jinja_template *self, const json_t *given) {
    const char *key = NULL;
    json_t *value = NULL;
    ck_assert_int_eq(jinja_begin(out, self, &err), WEFT_OK);
    json_object_foreach((json_t *)(uintptr_t)given, key, value) {
        if (strcmp(key, "messages") == 0) ck_assert(jinja_set_objects(*out, key, value, by_message, NULL));
        else ck_assert(jinja_set_json(*out, key, value, 1));
    }
    return jinja_run(*out, text, &err);
}

static void file_text(char **text, size_t *n, const char *name) {
    char path[1024], inside[128];
    (void)snprintf(inside, sizeof inside, "chat/%s", name);
    golden_path(path, sizeof path, inside);
    ck_assert_msg(weft_text_read(text, n, path, 1 << 24, &err) == WEFT_OK, "%s", err.text);
}

/* Checks a rendering against jinja2's: "refused" or the hash of the text. */
static void hold_one(const char *name, const jinja_template *self, const json_t *given, const char *expected,
                     int line) {
    jinja_render *r = NULL;
    jinja_output text;
    char hash[16] = "refused";
    if (render(&r, &text, self, given) == WEFT_OK) (void)snprintf(hash, sizeof hash, "%08x", fnv(text.bytes, text.n));
    ck_assert_msg(strcmp(hash, expected) == 0, "%s, conversation %d: %s, not %s %s", name, line, hash, expected,
                  err.text);
    jinja_end(r);
}

TEST(texts_are_those_of_jinja2) {
    jinja_template *templates[MOST_TEMPLATES];
    char names[MOST_TEMPLATES][16], file[32], *text = NULL, *expected = NULL, *conversations = NULL;
    size_t n = 0, bytes = 0;
    int count = 0, line = 0;
    char *row = NULL, *next = NULL, *save = NULL;
    file_text(&expected, &bytes, "expected.txt");
    file_text(&conversations, &bytes, "conversations.jsonl");
    row = strtok_r(expected, "\n", &next);
    for (char *name = strtok_r(row, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(count, MOST_TEMPLATES);
        (void)snprintf(names[count], sizeof names[count], "%s", name);
        (void)snprintf(file, sizeof file, "%s.jinja", name);
        file_text(&text, &n, file);
        templates[count++] = compiled(text);
        free(text);
    }
    ck_assert_int_ge(count, 12);
    for (char *at = conversations; *at != '\0'; line++) {
        char *end = strchr(at, '\n');
        json_t *given = json_loadb(at, (size_t)(end - at), 0, NULL);
        ck_assert_ptr_nonnull(given);
        row = strtok_r(NULL, "\n", &next);
        save = row;
        for (int i = 0; i < count; i++)
            hold_one(names[i], templates[i], given, strtok_r(i == 0 ? row : NULL, " ", &save), line + 1);
        json_decref(given);
        at = end + 1;
    }
    ck_assert_int_eq(line, 500);
    for (int i = 0; i < count; i++) jinja_free(templates[i]);
    free(expected);
    free(conversations);
}

#define DOUBLED "{% set ns = namespace(l=[]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
#define NESTED                                                                                                         \
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(99999) %}"                                                  \
    "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}"
#define MOST   "{% set m = 2 ** 62 - 1 + 2 ** 62 %}"
#define STEPS  1, "20000000 steps"
#define MEMORY 1, "512 MiB"
#define LEVELS 1, "200 levels"

static const struct {
    const char *source;
    int line;
    const char *fact; /* (optional) part of the message; after $, its end */
} errors[] = {
    {"a\nb\n{% if x %}", 3, "endif"},
    {"\n{{ 1 + }}", 2, "}}"},
    {"{% do x %}", 1, "statement do"},
    {"{% include 'x' %}", 1, "include"},
    {"{% if no %}{{ x|nosuch }}{% endif %}\n{{ x|nosuch }}", 2, "nosuch"},
    {"{% if no %}{% for a in x %}{{ a|nosuch }}{% endfor %}{% endif %}", 1, NULL},
    {"{% if true %}\n{{ x|nosuch }}{% endif %}", 2, "nosuch"},
    {"{{ 1 if true else 2 }}{{ x|nosuch if true }}", 1, "nosuch"},
    {"{{ x is prime }}", 1, "prime"},
    {"{{ 'abc }}", 1, "string"},
    {"{# abc", 1, "#}"},
    {"{% break %}", 1, "loop"},
    {"\n\n{{ a.b }}", 3, "a is undefined"},
    {"{{ 1 + 'x' }}", 1, "an integer + a string"},
    {"{{ raise_exception('no system here') }}", 1, "no system here"},
    {"{{ [].append(1) }}", 1, "append"},
    {"{{ 'a'.encode() }}", 1, "encode"},
    {"{{ '%s' % () }}", 1, "fewer values"},
    {"{{ '%d' % 'a' }}", 1, NULL},
    {"{{ '%99999d' % 1 }}", 1, NULL},
    {"{{ '{:99999}'.format(1) }}", 1, NULL},
    {"{{ '{} {}'.format(1) }}", 1, "fewer values"},
    {"{{ '{:{:{}}}'.format(1, 2, 3) }}", 1, NULL},
    {"{{ 'a-b'|wordwrap }}", 1, NULL},
    {"{{ 'abcdefghi'|truncate(2) }}", 1, NULL},
    {"{{ [1, 'a']|groupby('b.c') }}", 1, NULL},
    {"{{ {}.items }}", 1, "a method"},
    {"{% for i in [1] %}{{ loop([1]) }}{% endfor %}", 1, "recursive"},
    {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", LEVELS},
    {"{{ -18446744073709551615 }}", 1, NULL},
    {"{{ 18446744073709551615|length }}", 1, "has no length"},
    {"{{ joiner() < cycler(1) }}", 1, "a joiner < a cycler"},
    {"{{ 18446744073709551615 + 1 }}", 1, "64 bits"},
    {"{{ {}.keys()|tojson }}", 1, "a list"},
    {"{{ 1 // 0 }}", 1, "division by zero"},
    {"{{ [1]|map('string') }}", 1, "|list"},
    {"{{ [1]|select ~ '' }}", 1, "|list"},
    {"{{ [1]|reverse|last }}", 1, "|list"},
    {"{{ [1]|unique|length }}", 1, "no length"},
    {"{{ {}|items|tojson }}", 1, "an iterator"},
    {"{% set x.y = 1 %}", 1, "x is undefined"},
    /* unbounded recursion, loops, text */
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 1, "200 levels"},
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 1, NULL},
    {"{% set ns = namespace(s='abcdefgh') %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", 1,
     "16777216 bytes"},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", 1, NULL},
    {"{% for i in range(99999) %}{{ 'abcdefghijklmnopqrstuvwxyz' * 999 }}{% endfor %}", 1, "16777216 bytes"},
    {"{{ range(999999999) }}", 1, "100000"},
    {"{{ 9223372036854775807 + 1 }}", 1, NULL},
    {"{{ 'x' * 99999999999 }}", 1, "16777216 bytes"},
    {"{{ [1,2]|tojson(indent=99999999) }}", 1, NULL},
    /* nested values */
    {NESTED "{{ ns.a == ns.b }}", LEVELS},
    {NESTED "{{ ns.a < ns.b }}", LEVELS},
    {NESTED "{{ ns.a in [ns.b] }}", LEVELS},
    {NESTED "{{ ns.a }}", LEVELS},
    {NESTED "{{ ns.a|tojson }}", LEVELS},
    {DOUBLED "{{ ns.l == ns.l }}", STEPS},
    {DOUBLED "{{ ns.l in [1, ns.l] }}", STEPS},
    {DOUBLED "{{ ns.l|unique|list }}", 1, NULL},
    {DOUBLED "{{ ns.l }}", 1, NULL},
    {DOUBLED "{{ ns.l|tojson }}", 1, NULL},
    {DOUBLED "{{ ns.l|string|length }}", 1, NULL},
    {"{% set a = 'a' * 8000000 %}{% set b = 'a' * 7999999 + 'b' %}{% for i in range(99999) %}{{ a == b }}{% endfor %}",
     STEPS},
    {"{% set a = 'a' * 8000000 %}{% for i in range(99999) %}{{ 'b' in a }}{% endfor %}", STEPS},
    {"{% set a = range(99999)|list %}{% for i in a %}{{ -1 in a }}{% endfor %}", STEPS},
    {NESTED "{{ ns.a|map(*(['map'] * 99999))|list }}", LEVELS},
    /* repeated work on long texts */
    {"{% set a = 'a' * 8000000 %}{% set b = 'a' * 4000000 + 'b' %}{{ a.rfind('b' + b) }}{{ a.rfind('b' + a) }}"
     "{{ (a + 'c').rfind(b) }}{{ (b * 2).rfind('b' + b) }}",
     STEPS},
    {"{% set a = 'a' * 8000000 %}{{ a.strip('b' * 8000000 + 'a')|length }}", STEPS},
    {"{% set a = 'é' * 4000000 %}{% for i in range(99999) %}{{ a[3999999] }}{% endfor %}", STEPS},
    {"{% set a = 'é' * 4000000 %}{% for i in range(99999) %}{{ a[1:]|length }}{% endfor %}", STEPS},
    {"{% set a = '1' * 8000000 %}{% for i in range(99999) %}{{ a.isdigit() }}{% endfor %}", STEPS},
    {"{% set a = ' ' * 8000000 %}{% for i in range(99999) %}{{ a.split() }}{% endfor %}", STEPS},
    {"{% set a = 'a' * 8000000 %}{% for i in range(99999) %}{{ a.startswith(a) }}{% endfor %}", STEPS},
    {"{{ (['a' * 8000000] * 99999)|sort }}", MEMORY},
    {"{% macro f() %}{% endmacro %}{% set a = [1] * 9999 %}{% for i in range(99999) %}{{ f(*a) }}{% endfor %}", 1,
     NULL},
    /* limits of 64-bit integers */
    {MOST "{{ range(m - 7, m, 3)|list }}{{ range(-m, m, m)|list }}{{ 1 // 0 }}", 1, "division by zero"},
    {MOST "{{ [1, 2, 3][1::m] }}{{ 'abc'[1::m] }}{{ 'abc'[::-m] }}{{ [1][::-m] }}{{ 1 // 0 }}", 1, "division by zero"},
    {MOST "{{ [[1]]|tojson(indent=m) }}", 1, "16777216 bytes"},
    /* parts of other strings */
    {"{{ raise_exception('no system here'[:9]) }}", 1, "$: no system"},
    {"{{ {'name': 1}['nameless'[:2]].x }}", 1, "na is undefined"},
    {"{{ ['a']|map('upperlower'[2:5])|list }}", 1, "$ per"},
};

TESTS(errors_have_line_and_cause, LENGTH(errors)) {
    jinja_template *self = NULL;
    jinja_render *r = NULL;
    jinja_output text;
    json_t *none = json_object();
    const char *source = errors[_i].source, *fact = errors[_i].fact;
    char where[32];
    weft_status status = jinja_compile(&self, weft_services(), "T", source, strlen(source), &err);
    if (status == WEFT_OK) status = render(&r, &text, self, none);
    ck_assert_msg(status == WEFT_E_DATA, "%s", source);
    (void)snprintf(where, sizeof where, "T, line %d: ", errors[_i].line);
    ck_assert_msg(strncmp(err.text, where, strlen(where)) == 0, "%s: %s", source, err.text);
    if (fact != NULL && fact[0] == '$')
        ck_assert_msg(strcmp(err.text + strlen(err.text) - strlen(fact + 1), fact + 1) == 0, "%s: %s", source,
                      err.text);
    else if (fact != NULL) ck_assert_msg(strstr(err.text, fact) != NULL, "%s: %s", source, err.text);
    jinja_end(r);
    jinja_free(self);
    json_decref(none);
}

#define EIGHT_MIB                                                                                                      \
    "{% set ns = namespace(s='abcdefgh') %}{% for i in range(20) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"

/* Limits: a template with the count `fits` renders, one with `exceeds` fails. The count replaces "#", or is the number
 * of copies of a text between two "@". */
static const struct {
    const char *source;
    int64_t fits, exceeds;
    const char *fact; /* part of the message */
} limits[] = {
    {"{{ 'x' * # }}", 16777216, 16777217, "16777216 bytes"},
    {"{% set a = 'x' * 8388608 %}{{ a }}{{ 'x' * # }}", 8388608, 8388609, "16777216 bytes"},
    {"{{ '%#d' % 1 }}", 65536, 65537, "65536"},
    {"{{ '{:#}'.format(1) }}", 65536, 65537, "format"},
    {"{{ range(#)|length }}", 100000, 100001, "100000"},
    {"{% for i in range(#) %}{% generation %}a{% endgeneration %}{% endfor %}", 32767, 32768,
     "32767 generation blocks"},
    /* a call of a macro inside {{ }} and {% if %} has three levels */
    {"{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(#) }}", 66, 67, "200 levels"},
    /* the output of a list is one level, and so is each list */
    {"{% set ns = namespace(a=[]) %}{% for i in range(#) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}", 199, 200,
     "200 levels"},
    /* parentheses have two levels of expressions each */
    {"{{ @(@1@)@ }}", 98, 99, "nested too deep"},
    {"{% if false %}@{% elif false %}@{% endif %}", 197, 198, "nested too deep"},
    {"@{% if true %}@@{% endif %}@", 198, 199, "nested too deep"},
    /* a comparison takes a step for every 256 bytes, here 32,768 */
    {EIGHT_MIB "{% set b = ns.s[:-1] + 'b' %}{% for i in range(#) %}{{ ns.s == b }}{% endfor %}", 600, 611,
     "20000000 steps"},
    /* a string takes five bytes for each byte, and its buffer doubles when it grows */
    {EIGHT_MIB "{% for i in range(#) %}{% set a = ns.s + 'b' %}{% endfor %}", 2, 4, "512 MiB"},
};

/* Writes the source with the count n. */
static char *source_of(const char *source, int64_t n) {
    weft_bytes out = {0};
    for (const char *at = source; *at != '\0'; at++) {
        char number[32];
        const char *end = *at == '@' ? strchr(at + 1, '@') : NULL;
        if (*at == '#') {
            (void)snprintf(number, sizeof number, "%lld", (long long)n);
            ck_assert_int_eq(weft_bytes_put(&out, number, strlen(number)), WEFT_OK);
        } else if (end != NULL) {
            for (int64_t i = 0; i < n; i++)
                ck_assert_int_eq(weft_bytes_put(&out, at + 1, (size_t)(end - at - 1)), WEFT_OK);
            at = end;
        } else ck_assert_int_eq(weft_bytes_put(&out, at, 1), WEFT_OK);
    }
    ck_assert_int_eq(weft_bytes_put(&out, "", 1), WEFT_OK);
    return out.data;
}

static weft_status status_of(const char *source) {
    jinja_template *self = NULL;
    jinja_render *r = NULL;
    jinja_output text;
    json_t *none = json_object();
    weft_status status = jinja_compile(&self, weft_services(), "T", source, strlen(source), &err);
    if (status == WEFT_OK) status = render(&r, &text, self, none);
    jinja_end(r);
    jinja_free(self);
    json_decref(none);
    return status;
}

TESTS(limits_are_exact, LENGTH(limits)) {
    char *fits = source_of(limits[_i].source, limits[_i].fits),
         *exceeds = source_of(limits[_i].source, limits[_i].exceeds);
    ck_assert_msg(status_of(fits) == WEFT_OK, "%s: %s", limits[_i].source, err.text);
    ck_assert_int_eq(status_of(exceeds), WEFT_E_DATA);
    ck_assert_msg(strstr(err.text, limits[_i].fact) != NULL, "%s: %s", limits[_i].source, err.text);
    free(fits);
    free(exceeds);
}

TESTS(deep_nesting_is_an_error, 10) {
    enum { N = 100000 };
    static const struct {
        const char *before, *opens;
    } rows[] = {{"{{ ", "("},  {"{{ ", "["},     {"{{ ", "not "},  {"{{ ", "-"},     {"", "{% if x %}"},
                {"{{ ", "x."}, {"{{ ", "{'a':"}, {"{% for ", "("}, {"{% set ", "("}, {"{% for a, ", "("}};
    char *source = malloc((size_t)N * 12 + 16);
    const size_t n = strlen(rows[_i].opens);
    jinja_template *self = NULL;
    size_t at = strlen(rows[_i].before);
    memcpy(source, rows[_i].before, at);
    for (int i = 0; i < N; i++, at += n) memcpy(source + at, rows[_i].opens, n);
    ck_assert_int_eq(jinja_compile(&self, weft_services(), "T", source, at, &err), WEFT_E_DATA);
    free(source);
}

/* Marks as one character per byte: '.' template, 'd' data, a digit for a message. */
TESTS(marks_follow_their_bytes, 7) {
    static const struct {
        const char *source, *text, *marks;
    } rows[] = {
        {"<{{ messages[0].role }}>{{ messages[0].content }}|", "<user> Hi |", ".dddd.0000."},
        {"{{ messages[0].content|trim ~ '!' }}{{ messages[1].content[1:3]|upper }}", "Hi!NS", "00.11"},
        {"{{ messages[1].content.replace('s', '-') }}", "an-wer", "11.111"},
        {"{{ messages[1].content.split('w')|join('+') }}", "ans+er", "111.11"},
        {"{% set x %}[{{ messages[1].content }}]{% endset %}{{ x[::-1] }}", "]rewsna[", ".111111."},
        {"{{ messages[1]|tojson }}", "{\"role\": \"assistant\", \"content\": \"answer\"}",
         "..........ddddddddd...............111111.."},
        {"{% for m in messages %}{{ m.content }}{% endfor %}", " Hi answer", "0000111111"},
    };
    static const char given[] = "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi \"},"
                                "{\"role\":\"assistant\",\"content\":\"answer\"}]}";
    jinja_template *self = compiled(rows[_i].source);
    json_t *object = json_loads(given, 0, NULL);
    jinja_render *r = NULL;
    jinja_output text;
    ck_assert_msg(render(&r, &text, self, object) == WEFT_OK, "%s", err.text);
    ck_assert_uint_eq(text.n, strlen(rows[_i].text));
    ck_assert(memcmp(text.bytes, rows[_i].text, text.n) == 0);
    for (size_t i = 0; i < text.n; i++) {
        const uint32_t mark = text.marks[i];
        const char shown = mark == 0 ? '.' : mark == 1 ? 'd' : (char)('0' + mark - 2);
        ck_assert_msg(shown == rows[_i].marks[i], "byte %zu of %s: %c", i, rows[_i].text, shown);
    }
    jinja_end(r);
    jinja_free(self);
    json_decref(object);
}

/* Encodes a character below U+20000 as UTF-8, and returns its length. */
static size_t put_utf8(char out[4], int32_t c) {
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (int i = more; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(more == 0 ? c : (0xFF00 >> (more + 1) & 0xFF) | c);
    return (size_t)more + 1;
}

/* Hashes of tests/golden/make_unicode.py. They do not depend on the Unicode version of installed libraries. */
TESTS(cases_are_those_of_python, 8) {
    static const struct {
        const char *source, *before;
        uint64_t hash;
    } rows[] = {
        {"{{ x.upper() }}", "", 0xa051a9e4a2bf1555u},    {"{{ x.upper() }}", "b", 0x51bd0e30cf0721d1u},
        {"{{ x.lower() }}", "", 0xfbaa2b190d0d4b4eu},    {"{{ x.lower() }}", "b", 0x0a2ca84d20ebeb8cu},
        {"{{ x.title() }}", "", 0x0965050dcea511c4u},    {"{{ x.title() }}", "b", 0x45a3e789293c15ecu},
        {"{{ x.swapcase() }}", "", 0x2525989637c13757u}, {"{{ x.swapcase() }}", "b", 0xa79a4967028ee1d7u},
    };
    jinja_template *self = compiled(rows[_i].source);
    uint64_t hash = 14695981039346656037u;
    for (int32_t block = 0; block < 0x20000; block += 4096) {
        weft_bytes text = {0};
        json_t *object = NULL;
        jinja_render *r = NULL;
        jinja_output out;
        for (int32_t c = block; c < block + 4096; c++) {
            char character[4];
            if ((c >= 0xD800 && c < 0xE000) || c == 0x3A3) continue;
            if (text.n > 0) ck_assert_int_eq(weft_bytes_put(&text, " ", 1), WEFT_OK);
            ck_assert_int_eq(weft_bytes_put(&text, rows[_i].before, strlen(rows[_i].before)), WEFT_OK);
            ck_assert_int_eq(weft_bytes_put(&text, character, put_utf8(character, c)), WEFT_OK);
        }
        if (text.n == 0) continue;
        object = json_pack("{s:s%}", "x", text.data, text.n);
        ck_assert_ptr_nonnull(object);
        ck_assert_msg(render(&r, &out, self, object) == WEFT_OK, "%s", err.text);
        for (size_t i = 0; i < out.n; i++) hash = (hash ^ (unsigned char)out.bytes[i]) * 1099511628211u;
        jinja_end(r);
        json_decref(object);
        weft_bytes_free(&text);
    }
    ck_assert_msg(hash == rows[_i].hash, "%s behind '%s': %016llx", rows[_i].source, rows[_i].before,
                  (unsigned long long)hash);
    jinja_free(self);
}

TEST(generation_blocks_are_counted) {
    jinja_template *self = compiled("a{% for i in [1,2] %}{% generation %}b{{ i }}{% endgeneration %}c{% endfor %}");
    json_t *none = json_object();
    jinja_render *r = NULL;
    jinja_output text;
    static const uint32_t blocks[] = {0, 1, 1, 0, 2, 2, 0};
    ck_assert_int_eq(render(&r, &text, self, none), WEFT_OK);
    ck_assert_uint_eq(text.n, 7);
    ck_assert(jinja_has_blocks(self));
    for (size_t i = 0; i < 7; i++) ck_assert_uint_eq(JINJA_BLOCK(text.marks[i]), blocks[i]);
    jinja_end(r);
    jinja_free(self);
    json_decref(none);
}

/* Origins of texts: 0 for jinja_set_text, the given number for jinja_set_json. */
TEST(variables_have_their_values_and_origins) {
    jinja_template *self = compiled("{{ bos }}{{ flag }}{{ name }}{{ strftime_now('%Y') }}{{ missing }}{{ big }}");
    json_t *name = json_string("x");
    jinja_render *r = NULL;
    jinja_output text;
    ck_assert_int_eq(jinja_begin(&r, self, &err), WEFT_OK);
    ck_assert(jinja_set_text(r, "bos", "<s>", 3));
    ck_assert(jinja_set_bool(r, "flag", true));
    ck_assert(jinja_set_json(r, "name", name, 7));
    ck_assert(jinja_set_time(r, 200 * 86400));
    json_decref(name);
    name = json_integer(INT64_MIN);
    ck_assert(jinja_set_json(r, "big", name, 7));
    ck_assert_msg(jinja_run(r, &text, &err) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(text.bytes, "<s>Truex1970-9223372036854775808");
    for (size_t i = 0; i < text.n; i++) ck_assert_uint_eq(JINJA_ORIGIN(text.marks[i]), text.bytes[i] == 'x' ? 7 : 0);
    jinja_end(r);
    jinja_free(self);
    json_decref(name);
}

TEST(uses_of_keys_are_recorded) {
    static const char given[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"list\":\"xy\",\"unused\":1},"
                                "{\"role\":\"tool\",\"content\":\"b\"}],\"tools\":[]}";
    jinja_template *self = compiled("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
                                    "{% for c in m['list'] %}{% endfor %}{% if no %}{{ tools }}{% endif %}"
                                    "{% set other = 1 %}{% endfor %}");
    json_t *object = json_loads(given, 0, NULL);
    jinja_render *r = NULL;
    jinja_output text;
    ck_assert_msg(render(&r, &text, self, object) == WEFT_OK, "%s", err.text);
    ck_assert(jinja_has_read(r, 0, "role") && jinja_has_read(r, 0, "content") && jinja_has_read(r, 0, "list"));
    ck_assert(!jinja_has_read(r, 0, "unused") && !jinja_has_read(r, 0, "absent") && !jinja_has_read(r, 1, "content"));
    ck_assert(jinja_has_matched(r, 0, "role") && !jinja_has_matched(r, 1, "role"));
    ck_assert(!jinja_has_matched(r, 0, "content") && !jinja_has_matched(r, 0, "unused"));
    ck_assert(jinja_has_walked(r, 0, "list") && !jinja_has_walked(r, 0, "content"));
    ck_assert(jinja_names_variable(self, "messages") && jinja_names_variable(self, "no"));
    ck_assert(jinja_names_variable(self, "tools") && !jinja_names_variable(self, "other"));
    ck_assert(jinja_has_read_variable(r, "messages") && !jinja_has_read_variable(r, "tools"));
    ck_assert(!jinja_has_blocks(self));
    jinja_end(r);
    jinja_free(self);
    json_decref(object);
}

int main(void) {
    TCase *tests = tcase_create("jinja");
    tcase_set_timeout(tests, 60);
    return run_tests(tests);
}
