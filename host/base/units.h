/* host/base/units.h: formats numbers for people. Each function writes into the caller's buffer and returns it. */
#ifndef WEFT_HOST_BASE_UNITS_H
#define WEFT_HOST_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_UNIT_SIZE 32

/* "1,234,567" */
char *weft_unit_count(char text[WEFT_UNIT_SIZE], int64_t value);
/* "1 document", "2,356 documents"; the noun takes an s. */
char *weft_unit_counted(char text[WEFT_UNIT_SIZE], int64_t value, const char *noun);
/* "12.3 MiB"; whole bytes below 1 KiB. */
char *weft_unit_bytes(char text[WEFT_UNIT_SIZE], int64_t bytes);
/* "850 ms", "12.3 s", "3 min 20 s", "2 h 05 min". */
char *weft_unit_seconds(char text[WEFT_UNIT_SIZE], double seconds);

#endif
