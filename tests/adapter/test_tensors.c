/* An adapter plugin's description of its weights in files: unchanged, transposed, or as columns of one table; and
 * invalid descriptions. */
#include "adapter/adapter.h"
#include "suite.h"

/* The plugin's description of its two parameters, each (2, 3). */
typedef struct said {
    int64_t dims[2][3], column[2];
    int32_t rank, transposed;
    const char *names[2];
} said;

static said saying;

static weft_status say(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out, weft_error *err) {
    const int i = strcmp(parameter, "m.a.weight") == 0 ? 0 : 1;
    memcpy(out->dims, saying.dims[i], sizeof out->dims);
    out->column = saying.column[i];
    out->rank = saying.rank;
    out->transposed = saying.transposed;
    (void)snprintf(out->name, sizeof out->name, "%s", saying.names[i]);
    return WEFT_OK;
}

static const weft_adapter_plugin plugin = {.struct_size = (uint32_t)sizeof plugin, .tensor = say};

static weft_status list(weft_adapter_list *out, const said *what, weft_error *err) {
    static char names[2][16] = {"m.a.weight", "m.b.weight"};
    weft_parameter parameters[2];
    const weft_declared declared = {
        .parameters = parameters, .n_parameters = 2, .adapters = {{&plugin, NULL}}, .n_adapters = 1};
    memset(parameters, 0, sizeof parameters);
    for (int i = 0; i < 2; i++) {
        parameters[i].name = names[i];
        parameters[i].rank = 2;
        parameters[i].dims[0] = 2;
        parameters[i].dims[1] = 3;
        parameters[i].numel = 6;
        parameters[i].added = 1;
        parameters[i].trainable = true;
    }
    saying = *what;
    return weft_adapter_list_make(out, &declared, 0, false, err);
}

#define TABLE                                                                                                          \
    { "table", "table" }
#define APART                                                                                                          \
    { "a", "b" }

TEST(columns_of_one_table) {
    const said what = {{{2, 6}, {2, 6}}, {3, 0}, 2, 0, TABLE};
    weft_error err = WEFT_ERROR_INIT;
    weft_adapter_list found;
    ck_assert_ok(list(&found, &what, &err), err);
    ck_assert_int_eq(found.n, 2);
    ck_assert_int_eq(found.n_tensors, 1);
    ck_assert(found.entries[0].is_moved && found.entries[1].is_moved && found.entries[1].at == 0);
    ck_assert_int_eq(weft_adapter_place(&found.entries[0], 1, 2), 11);
    ck_assert_int_eq(weft_adapter_place(&found.entries[1], 1, 2), 8);
    free(found.entries);
}

TESTS(each_by_itself, 2) {
    static const said good[] = {{{{3, 2}, {3, 2}}, {0, 0}, 2, 1, APART}, {{{1, 2, 3}, {6, 1, 1}}, {0, 0}, 3, 0, APART}};
    weft_error err = WEFT_ERROR_INIT;
    weft_adapter_list found;
    ck_assert_ok(list(&found, &good[_i], &err), err);
    ck_assert_int_eq(found.n_tensors, 2);
    ck_assert_int_eq(found.entries[1].is_moved, _i == 0);
    if (_i == 0) ck_assert_int_eq(weft_adapter_place(&found.entries[0], 1, 2), 5);
    free(found.entries);
}

static const struct {
    said what;
    const char *says;
} bad[] = {{{{{2, 6}, {2, 6}}, {0, 0}, 2, 0, TABLE}, "its parameters do not fill each column once"}, /* same columns */
           {{{{2, 7}, {2, 7}}, {0, 3}, 2, 0, TABLE}, "its parameters do not fill each column once"}, /* one too many */
           {{{{2, 6}, {2, 6}}, {0, 3}, 2, 0, APART}, "its parameters do not fill each column once"}, /* half of each */
           {{{{2, 6}, {2, 9}}, {0, 3}, 2, 0, TABLE}, "its parameters do not fill each column once"}, /* two shapes */
           {{{{2, 6}, {2, 6}}, {0, 4}, 2, 0, TABLE}, "an invalid name or shape"},
           {{{{2, 6}, {2, 6}}, {-1, 3}, 2, 0, TABLE}, "an invalid name or shape"},
           {{{{6, 2}, {6, 2}}, {0, 3}, 2, 0, TABLE}, "an invalid name or shape"},
           {{{{2, 6}, {2, 6}}, {0, 3}, 2, 1, TABLE}, "an invalid name or shape"},
           {{{{2, 3}, {2, 3}}, {1, 0}, 2, 0, APART}, "an invalid name or shape"},
           {{{{1, 2, 2}, {1, 2, 3}}, {0, 0}, 3, 0, APART}, "an invalid name or shape"},
           {{{{INT64_MAX, 2, 3}, {1, 2, 3}}, {0, 0}, 3, 0, APART}, "an invalid name or shape"}};

TESTS(rejects_invalid_descriptions, LENGTH(bad)) {
    weft_error err = WEFT_ERROR_INIT;
    weft_adapter_list found;
    ck_assert_int_eq(list(&found, &bad[_i].what, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, bad[_i].says);
    free(found.entries);
}

int main(void) {
    return run_tests(tcase_create("tensors"));
}
