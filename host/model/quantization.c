/* host/model/quantization.c: see quantization.h. */
#include "model/quantization.h"

#include <stdlib.h>

#include "base/text.h"
#include "model/config_json.h"

static const char key[] = "quantization_config";

/* True for bitsandbytes. Its releases that supported only 8 bits did not name a method. */
static bool is_bitsandbytes(const json_t *said) {
    const json_t *method = json_object_get(said, "quant_method");
    if (method != NULL) return json_is_string(method) && strcmp(json_string_value(method), "bitsandbytes") == 0;
    return json_is_true(json_object_get(said, "load_in_8bit")) || json_is_true(json_object_get(said, "load_in_4bit"));
}

weft_status weft_quantization_take(bool *taken, char **text, size_t *bytes, const char *path, weft_error *err) {
    json_t *config = NULL;
    char *without = NULL;
    size_t n = 0;
    const weft_status status = weft_json_parse(&config, *text, *bytes, 0, path, err);
    if (status != WEFT_OK) return status;
    *taken = is_bitsandbytes(json_object_get(config, key));
    json_decref(config);
    if (!*taken) return WEFT_OK;
    without = weft_config_json_without(*text, *bytes, key, &n);
    if (without == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", path);
    free(*text);
    *text = without;
    *bytes = n;
    return WEFT_OK;
}
