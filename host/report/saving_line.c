/* host/report/saving_line.c: see saving_line.h. */
#include "report/saving_line.h"

#include "base/units.h"
#include "program/save_place.h"

/* Returns why auto saves synchronously; NULL: it does not, or the setting is not auto. */
static const char *why_in_place(const weft_plan *plan) {
    if (plan->saves == WEFT_SAVES_SHARED) return "the device computes in the machine's memory";
    if (plan->saves == WEFT_SAVES_NO_ROOM) return "the ranks' copies would be more than half of this machine's memory";
    return NULL;
}

void weft_saving_print(const weft_plan *plan, int indent, FILE *to) {
    char bytes[WEFT_UNIT_SIZE];
    const char *why = why_in_place(plan);
    if (plan->saves == WEFT_SAVES_NONE) return;
    (void)weft_unit_bytes(bytes, weft_save_place_bytes(plan));
    (void)fprintf(to, "%-*s", indent, "saving");
    if (plan->saves == WEFT_SAVES_BESIDE)
        (void)fprintf(to, "beside training, from a copy of %s in the host's memory, %s\n", bytes,
                      plan->visible ? "which workspace has" : "which is in no line above");
    else if (why != NULL)
        (void)fprintf(to, "in place, as %s: [checkpoint] beside = yes takes %s for a copy\n", why, bytes);
    else (void)fprintf(to, "in place: training stands while a checkpoint is written\n");
}

json_t *weft_saving_object(const weft_plan *plan) {
    if (plan->saves == WEFT_SAVES_NONE) return NULL;
    return json_pack("{s:b, s:s?, s:I, s:b}", "beside", plan->saves == WEFT_SAVES_BESIDE, "why", why_in_place(plan),
                     "bytes", (json_int_t)weft_save_place_bytes(plan), "of_total",
                     plan->saves == WEFT_SAVES_BESIDE && plan->visible);
}
