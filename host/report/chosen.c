/* host/report/chosen.c: see chosen.h. */
#include "report/chosen.h"

void weft_chosen_print(const weft_choices *choices, int indent, FILE *to) {
    int width = 0;
    if (choices->n == 0) return;
    for (int32_t i = 0; i < choices->n; i++)
        if ((int)strlen(choices->items[i].key) > width) width = (int)strlen(choices->items[i].key);
    (void)fprintf(to, "%-*s%d choices of the device, made by rank 0 for all\n", indent, "chosen", (int)choices->n);
    for (int32_t i = 0; i < choices->n; i++)
        (void)fprintf(to, "  %-*s  %s\n", width, choices->items[i].key, choices->items[i].note);
}

json_t *weft_chosen_array(const weft_choices *choices) {
    json_t *rows = json_array();
    for (int32_t i = 0; i < choices->n; i++)
        (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "for", choices->items[i].key, "choice",
                                                    choices->items[i].note, "value", choices->items[i].value));
    return rows;
}
