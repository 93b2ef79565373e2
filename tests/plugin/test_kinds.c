/* Empties every slot of every kind's table in turn: a missing required slot is rejected by name, an optional one is
 * not. Slots come from tests/sdk/layout.txt, so that a slot which the host fails to check is detected. */
#include "suite.h"
#include "plugin/load.h"

#include <check.h>
#include <stdlib.h>

#include <weft/adapter.h>
#include <weft/comm.h>
#include <weft/data.h>
#include <weft/model.h>
#include <weft/policy.h>
#include <weft/strategy.h>
#include <weft/tokenizer.h>

typedef struct field {
    char of[64], name[64]; /* "weft_device_plugin", "create" */
    size_t offset;
} field;

static field fields[1000];
static size_t n_fields;

/* Reads the layout: "weft_device_plugin 440", then "    create    8    8" for each field. */
static void collect_fields(void) {
    char path[4096], line[256], of[64] = "";
    FILE *file = NULL;
    (void)snprintf(path, sizeof path, "%s/tests/sdk/layout.txt", getenv("WEFT_SOURCE"));
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    for (n_fields = 0; fgets(line, sizeof line, file) != NULL;) {
        field *f = &fields[n_fields];
        if (line[0] != ' ') {
            ck_assert_int_eq(sscanf(line, "%63s", of), 1);
            continue;
        }
        ck_assert_int_eq(sscanf(line, "%63s %zu", f->name, &f->offset), 2);
        (void)snprintf(f->of, sizeof f->of, "%s", of);
        ck_assert_uint_lt(++n_fields, sizeof fields / sizeof fields[0]);
    }
    (void)fclose(file);
}

#define KIND(name)                                                                                                     \
    { #name, 1, sizeof(weft_##name##_plugin), WEFT_SIZE_1_0(weft_##name##_plugin) }
static const struct kind {
    const char *name;
    uint32_t interface_major;
    size_t table_size, first_size; /* today and in SDK 1.0 */
} kinds[] = {KIND(model),    KIND(optimizer), KIND(data), KIND(tokenizer), KIND(device),
             KIND(strategy), KIND(policy),    KIND(comm), KIND(adapter)};
#define N_KINDS (int)(sizeof kinds / sizeof kinds[0])

/* Slots of an adapter's sites have the same names as required device slots. */
static int is_optional(const char *of, const char *name) {
    const char *const at_sites[] = {"linear", "embedding", "attention", "head", "tensor", "config_json", "merge"};
    for (size_t i = 0; i < sizeof at_sites / sizeof *at_sites; i++)
        if (strcmp(of, "weft_adapter_plugin") == 0 && strcmp(name, at_sites[i]) == 0) return 1;
    return strcmp(name, "extension") == 0 || strcmp(name, "host_view") == 0 || strcmp(name, "file") == 0 ||
           strcmp(name, "poke") == 0 || strcmp(name, "join") == 0 || strcmp(name, "connect") == 0 ||
           strcmp(name, "abandon") == 0 || strcmp(name, "check") == 0 || strcmp(name, "lr") == 0;
}

static weft_status judge(const struct kind *kind, const void *table, weft_error *err) {
    weft_plugin plugin = {
        (uint32_t)sizeof(weft_plugin), 0, kind->name, "sample", "1.0", "A sample.", kind->interface_major,
        (uint32_t)sizeof(weft_key),    0, NULL,       8,        NULL,  table,       NULL};
    const weft_plugin_list list = {(uint32_t)sizeof list, 0, 1, (uint32_t)sizeof plugin, &plugin};
    static weft_preflight note;
    char text[256];
    (void)snprintf(text, sizeof text, "weft-plugin/1\nsdk=1000\nmin_sdk=1000\nplugin=%s/%u sample 1.0\n", kind->name,
                   kind->interface_major);
    ck_assert_int_eq(weft_note_parse(&note, text, NULL), WEFT_OK);
    ck_assert_msg(weft_kind_fits(&note.plugins[0], err) == WEFT_OK, "%s", err->text);
    return weft_list_check(&list, &note, err);
}

TESTS(required_slots_are_verified, N_KINDS) {
    const struct kind *kind = &kinds[_i];
    char of[64], named[128];
    unsigned char table[1024];
    const uint32_t size = (uint32_t)kind->table_size;
    size_t i, slots = 0;
    weft_error err = WEFT_ERROR_INIT;
    (void)snprintf(of, sizeof of, "weft_%s_plugin", kind->name);
    ck_assert_uint_le(kind->table_size, sizeof table);
    memset(table, 1, sizeof table); /* fills slots with arbitrary values */
    memcpy(table, &size, sizeof size);
    ck_assert_msg(judge(kind, table, &err) == WEFT_OK, "%s", err.text);
    for (i = 0; i < n_fields; i++) {
        const field *f = &fields[i];
        if (strcmp(f->of, of) != 0 || f->offset < 8) continue;
        memset(table + f->offset, 0, sizeof(void *));
        if (f->offset >= kind->first_size || is_optional(of, f->name)) {
            ck_assert_msg(judge(kind, table, &err) == WEFT_OK, "%s is optional: %s", f->name, err.text);
        } else {
            (void)snprintf(named, sizeof named, "the required slot %s of %s:sample empty", f->name, kind->name);
            ck_assert_msg(judge(kind, table, &err) == WEFT_E_PLUGIN, "%s may be empty in %s", f->name, of);
            ck_assert_msg(strstr(err.text, named) != NULL, "%s", err.text);
        }
        memset(table + f->offset, 1, sizeof(void *));
        slots++;
    }
    ck_assert_uint_eq(slots, (kind->table_size - 8) / sizeof(void *));
}

int main(void) {
    TCase *tests = tcase_create("kinds");
    tcase_add_checked_fixture(tests, collect_fields, NULL);
    return run_tests(tests);
}
