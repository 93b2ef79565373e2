/* common/machine.h: number that all ranks of one machine share, and ranks of other machines do not. Ranks compare it to
 * find local ranks. */
#ifndef WEFT_PLUGINS_COMMON_MACHINE_H
#define WEFT_PLUGINS_COMMON_MACHINE_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* FNV-1a. */
static inline uint64_t machine_add(uint64_t number, const char *text) {
    for (; *text != '\0'; text++) number = (number ^ (unsigned char)*text) * 1099511628211u;
    return number;
}

/* Hashes the boot ID and the host name. Machines from one image may share a name, but each boot has its own ID.
 * Containers of one machine share the boot ID; with different host names they count as different machines, with their
 * own GPUs. */
static inline uint64_t machine_number_of(const char *boot, const char *name) {
    return machine_add(machine_add(14695981039346656037u, boot), name);
}

/* Without a boot ID from the kernel, hashes the name only. */
static inline uint64_t machine_number(void) {
    char boot[64] = "", name[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(boot, sizeof boot, file) == NULL) boot[0] = '\0';
    if (file != NULL) (void)fclose(file);
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    return machine_number_of(boot, name);
}

#endif
