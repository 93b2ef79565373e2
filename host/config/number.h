/* host/config/number.h: parses numbers as users write them, and the ranges of key tables. */
#ifndef WEFT_HOST_CONFIG_NUMBER_H
#define WEFT_HOST_CONFIG_NUMBER_H

#include <stdbool.h>
#include <weft/keys.h>

/* The complete text must be the number, without blanks. Return false, with out unchanged, on failure. */
bool weft_number_i64(int64_t *out, const char *text); /* 12, -3, 1e6, 4k, 1.5M, 2Ki: k M G T, Ki Mi Gi Ti */
bool weft_number_bytes(int64_t *out,
                       const char *text);            /* positive, with its unit: 80GB, 1.5 TiB, 512m, 4096B; any case */
bool weft_number_f64(double *out, const char *text); /* decimal and finite, without underflow or overflow */

/* Prints the shortest decimal text that parses back to the same double; integers below a million without an exponent.
 * size: at least 32. */
void weft_number_print(char *out, size_t size, double value);

/* "[0,1) | none | auto" */
typedef struct weft_bounds {
    bool has_interval;        /* false: any number */
    bool low_open, high_open; /* the bound itself is outside */
    bool allows_none, allows_auto;
    int32_t type;          /* WEFT_KEY_I64 or WEFT_KEY_F64 */
    long double low, high; /* exact for both types; may be infinite */
} weft_bounds;

/* Returns false for an invalid or empty range. */
bool weft_bounds_parse(weft_bounds *out, const char *text, int32_t type);

/* value: an int64_t or a double, by type. */
bool weft_bounds_has(const weft_bounds *self, long double value);

/* Describes the allowed values: "a whole number of 1 or more, or none". */
void weft_bounds_advise(const weft_bounds *self, char *out, size_t size);

/* Returns the next element of a separated list, without surrounding blanks: "a, b" by ',' is "a", then "b". *rest is
 * NULL after the last; part points into the text. Returns false at the end. */
bool weft_part_next(const char **rest, char separator, const char **part, size_t *n);

#endif
