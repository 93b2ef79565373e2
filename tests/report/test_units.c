/* tests/report/test_units.c: numbers with their nouns in singular and plural. */
#include "base/units.h"
#include "suite.h"

TEST(one_is_no_plural) {
    char text[WEFT_UNIT_SIZE];
    ck_assert_str_eq(weft_unit_counted(text, 0, "row"), "0 rows");
    ck_assert_str_eq(weft_unit_counted(text, 1, "document"), "1 document");
    ck_assert_str_eq(weft_unit_counted(text, 2356, "document"), "2,356 documents");
}

int main(void) {
    return run_tests(tcase_create("units"));
}
