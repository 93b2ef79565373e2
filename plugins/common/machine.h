/* common/machine.h: a number that ranks of one machine have in common, and no others: by which they tell who is beside
 * them. */
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

/* Machines may have one name, as those that were made from one image, and each has a boot of its own. Containers of one
 * machine share its boot; where they have other names they count as machines, with cards of their own. */
static inline uint64_t machine_number_of(const char *boot, const char *name) {
    return machine_add(machine_add(14695981039346656037u, boot), name);
}

/* Where the kernel tells no boot the name is all there is. */
static inline uint64_t machine_number(void) {
    char boot[64] = "", name[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(boot, sizeof boot, file) == NULL) boot[0] = '\0';
    if (file != NULL) (void)fclose(file);
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    return machine_number_of(boot, name);
}

#endif
