/* Empties every slot of every kind's table in turn: a missing required slot is rejected by name, an optional one is
 * not. Slots come from ../sdk/layout.def, so that a slot which the host fails to check is detected. */
#include "suite.h"
#include "plugin/preflight.h"

#include <check.h>
#include <stdlib.h>

#include <weft/capture.h>
#include <weft/choices.h>
#include <weft/comm.h>
#include <weft/data.h>
#include <weft/dry_run.h>
#include <weft/model.h>
#include <weft/native.h>
#include <weft/adapter.h>
#include <weft/policy.h>
#include <weft/random.h>
#include <weft/blocks.h>
#include <weft/dynamic8.h>
#include <weft/roofline.h>
#include <weft/team.h>
#include <weft/transfer.h>
#include <weft/emit.h>
#include <weft/tokenizer.h>

typedef struct field {
    const char *of, *name;
    size_t offset;
} field;

static field fields[1000];
static size_t n_fields;

static void add_field(const char *of, const char *name, size_t offset) {
    ck_assert_uint_lt(n_fields, sizeof fields / sizeof fields[0]);
    fields[n_fields].of = of;
    fields[n_fields].name = name;
    fields[n_fields++].offset = offset;
}

static void collect_fields(void) {
    n_fields = 0;
#define STRUCT(name)                                                                                                   \
    {                                                                                                                  \
        typedef name this_struct;                                                                                      \
        const char *of = #name;
#define FIXED(name) STRUCT(name)
#define F(field)    add_field(of, #field, offsetof(this_struct, field));
#define END         }
#include "../sdk/layout.def"
#undef STRUCT
#undef FIXED
#undef F
#undef END
}

static const struct kind {
    const char *name;
    uint32_t interface_major;
    size_t table_size;
} kinds[] = {{"model", 1, sizeof(weft_model_plugin)},    {"optimizer", 1, sizeof(weft_optimizer_plugin)},
             {"data", 1, sizeof(weft_data_plugin)},      {"tokenizer", 1, sizeof(weft_tokenizer_plugin)},
             {"device", 1, sizeof(weft_device_plugin)},  {"strategy", 1, sizeof(weft_strategy_plugin)},
             {"policy", 1, sizeof(weft_policy_plugin)},  {"comm", 1, sizeof(weft_comm_plugin)},
             {"adapter", 1, sizeof(weft_adapter_plugin)}};
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

START_TEST(required_slots_are_verified) {
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
        if (is_optional(of, f->name)) {
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
END_TEST

int main(void) {
    Suite *suite = suite_create("kinds");
    TCase *tests = tcase_create("kinds");
    tcase_add_checked_fixture(tests, collect_fields, NULL);
    tcase_add_loop_test(tests, required_slots_are_verified, 0, N_KINDS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
