/* host/report/value_rows.c: see value_rows.h. Nine digits represent an fp32 number exactly; seven are enough for people
 * to compare. */
#include "report/value_rows.h"

#include <stdio.h>

static void print_row(void *context, const weft_value_row *row) {
    const int64_t n = row->n < WEFT_VALUES_TOLD ? row->n : WEFT_VALUES_TOLD;
    char what[200];
    (void)context;
    (void)snprintf(what, sizeof what, "%s%s%s", row->name, row->part[0] == '\0' ? "" : ", ", row->part);
    (void)printf("step %llu  %-28s  %-28s", (unsigned long long)row->step, row->instruction, what);
    for (int64_t i = 0; i < n; i++) (void)printf("  %14.7g", row->numbers[i]);
    if (n < row->n) (void)printf("  ... of %lld", (long long)row->n);
    (void)putchar('\n');
}

const weft_value_sink *weft_value_rows_to_stdout(void) {
    static const weft_value_sink sink = {.tell = print_row};
    return &sink;
}
