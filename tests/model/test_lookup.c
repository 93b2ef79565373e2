/* Lookup of numbers by name: every inserted name is found; the first of equal names wins. */
#include "base/lookup.h"
#include "suite.h"

enum { MANY = 5000, LENGTH = 24 };

TEST(finds_inserted_names) {
    char(*names)[LENGTH] = calloc(MANY, LENGTH), unknown[LENGTH];
    weft_lookup lookup = {0};
    ck_assert_int_eq(weft_lookup_find(&lookup, "layers.0"), -1);
    for (int32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], LENGTH, "layers.%d", (int)i);
        weft_lookup_put(&lookup, names[i], i);
    }
    for (int32_t i = 0; i < MANY; i++) {
        (void)snprintf(unknown, LENGTH, "layer.%d", (int)i);
        must(weft_lookup_find(&lookup, names[i]) == i && weft_lookup_find(&lookup, unknown) == -1);
    }
    weft_lookup_put(&lookup, "layers.7", 1);
    ck_assert_int_eq(weft_lookup_find(&lookup, "layers.7"), 7);
    ck_assert_int_eq(weft_lookup_find(&lookup, ""), -1);
    weft_lookup_put(&lookup, "", 3);
    ck_assert_int_eq(weft_lookup_find(&lookup, ""), 3);
    weft_lookup_free(&lookup);
    weft_lookup_free(&lookup);
    free(names);
}

int main(void) {
    return run_tests(tcase_create("lookup"));
}
