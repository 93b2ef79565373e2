/* host/report/launch_line.c: see launch_line.h. */
#include "report/launch_line.h"

#include "base/units.h"

void weft_launches_print(const weft_launches *launches, int indent, FILE *to) {
    char all[WEFT_UNIT_SIZE], kernels[WEFT_UNIT_SIZE], products[WEFT_UNIT_SIZE], copies[WEFT_UNIT_SIZE];
    if (!launches->known) return;
    (void)fprintf(to, "%-*s%s a step: %s and %s of a library; copies: %s\n", indent, "launches",
                  weft_unit_count(all, launches->kernels + launches->products),
                  weft_unit_counted(kernels, launches->kernels, "kernel"),
                  weft_unit_counted(products, launches->products, "call"), weft_unit_count(copies, launches->copies));
}

json_t *weft_launches_object(const weft_launches *launches) {
    return json_pack("{s:I, s:I, s:I}", "kernels", (json_int_t)launches->kernels, "products",
                     (json_int_t)launches->products, "copies", (json_int_t)launches->copies);
}
