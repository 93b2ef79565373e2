/* host/report/available_memory.c: see available_memory.h. */
#include "report/available_memory.h"

#include "base/machine.h"

void weft_available_memory_find(weft_available_memory *out, const weft_device_info *info) {
    weft_machine_memory machine;
    const int64_t left = info->memory > info->held ? info->memory - info->held : 1;
    const weft_available_memory device = {.bytes = info->memory > 0 ? left : 0, .free = -1, .held = info->held};
    *out = device;
    if ((info->flags & WEFT_DEVICE_SHARES_MACHINE) == 0) return;
    out->shared = true;
    weft_machine_memory_read(&machine, "");
    if (machine.total == 0) return;
    out->bytes = machine.total;
    out->free = machine.free;
    out->is_machines = true;
    out->limited = machine.limited;
}

void weft_available_memory_describe(weft_available_memory *out, int64_t bytes) {
    const weft_available_memory said = {.bytes = bytes, .free = -1};
    *out = said;
}

const char *weft_available_memory_owner(const weft_available_memory *room) {
    if (room->limited) return "this control group";
    return room->shared ? "this machine" : "a device";
}
