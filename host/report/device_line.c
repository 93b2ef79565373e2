/* host/report/device_line.c: see device_line.h. */
#include "report/device_line.h"

#include "base/units.h"

void weft_device_line_print(const weft_device_info *info, FILE *to) {
    char threads[WEFT_UNIT_SIZE];
    (void)fprintf(to, "device     %s, %s, %s", info->name, info->isa, info->backend);
    if (info->threads > 0) (void)fprintf(to, ", %s", weft_unit_counted(threads, info->threads, "thread"));
    (void)fputc('\n', to);
}
