/* host/report/stored.c: see stored.h. */
#include "report/stored.h"

#include "base/units.h"

static int64_t elements_in(const weft_declared *declared, int32_t dtype) {
    int64_t n = 0;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (declared->parameters[p].dtype == dtype) n += declared->parameters[p].numel;
    return n;
}

static int64_t bytes_in(const weft_declared *declared, int32_t dtype) {
    int64_t n = 0;
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (declared->parameters[p].dtype == dtype) n += weft_dtype_span(dtype, declared->parameters[p].numel);
    return n;
}

void weft_stored_print(const weft_declared *declared, int indent, FILE *to) {
    char count[WEFT_UNIT_SIZE], bytes[WEFT_UNIT_SIZE];
    const char *between = "";
    (void)fprintf(to, "%-*s", indent, "storage");
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST; dtype++) {
        const int64_t n = elements_in(declared, dtype);
        if (n == 0) continue;
        (void)fprintf(to, "%s%s parameters in %s (%s bytes)", between, weft_unit_count(count, n),
                      weft_dtype_name(dtype), weft_unit_count(bytes, bytes_in(declared, dtype)));
        between = ", ";
    }
    (void)fputc('\n', to);
}

json_t *weft_stored_array(const weft_declared *declared) {
    json_t *types = json_array();
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST; dtype++) {
        const int64_t n = elements_in(declared, dtype);
        if (n > 0)
            (void)json_array_append_new(types,
                                        json_pack("{s:s, s:I, s:I}", "type", weft_dtype_name(dtype), "parameters",
                                                  (json_int_t)n, "bytes", (json_int_t)bytes_in(declared, dtype)));
    }
    return types;
}
