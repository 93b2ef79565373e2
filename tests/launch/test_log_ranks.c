/* [run] log_ranks: ranks with visible output. */
#include "suite.h"

#include <check.h>

#include "launch/world.h"

enum { REFUSED = -1 };

/* size, rank, list, and whether the rank prints */
static const struct {
    int32_t size, rank;
    const char *list;
    int speaks;
    const char *says;
} cases[] = {
    {4, 0, "0", 1, NULL},
    {4, 1, "0", 0, NULL},
    {4, 3, "all", 1, NULL},
    {4, 2, "0,2", 1, NULL},
    {4, 2, " 0 , 2 ", 1, NULL},
    {4, 3, "0,2", 0, NULL},
    {4, 2, "2", 1, NULL},
    {12, 1, "10,11", 0, NULL},
    {1, 0, "0,3", 1, NULL}, /* of a run with several ranks, continued on one */
    {4, 0, "0,4", REFUSED, "[run] log_ranks contains rank 4, but this run has ranks 0 to 3"},
    {4, 0, "", REFUSED, "is not a list of ranks. Allowed: 0, all, or numbers separated by commas (0,2)"},
    {4, 0, "-1", REFUSED, "is not a list of ranks"},
    {4, 0, "0,,1", REFUSED, "is not a list of ranks"},
    {4, 0, "none", REFUSED, "is not a list of ranks"},
    {1, 0, "all,1", REFUSED, "is not a list of ranks"},
    {4, 0, "00000000000000000000000000000000001", REFUSED, "is not a list of ranks"},
};

TESTS(a_list_of_ranks, LENGTH(cases)) {
    weft_world world = {.rank = cases[_i].rank, .size = cases[_i].size};
    weft_error err = WEFT_ERROR_INIT;
    weft_config *config = NULL;
    weft_status status = WEFT_OK;
    ck_assert_int_eq(weft_config_load(&config, NULL, NULL, 0, &err), WEFT_OK);
    status = weft_log_ranks_validate(&world, cases[_i].list, config, &err);
    weft_config_free(config);
    ck_assert_int_eq(status, cases[_i].speaks == REFUSED ? WEFT_E_USER : WEFT_OK);
    if (status == WEFT_OK) ck_assert_int_eq(world.speaks, cases[_i].speaks);
    else ck_assert_msg(strstr(err.text, cases[_i].says) != NULL, "%s", err.text);
}

int main(void) {
    return run_tests(tcase_create("lists"));
}
