/* host/base/templates.c: see templates.h. */
#include "base/templates.h"

#include "base/installed.h"

weft_status weft_templates_find(char out[WEFT_PATH_BYTES], const char *name, weft_error *err) {
    static const char *const places[] = {"template", WEFT_RELATIVE_TEMPLATE_DIR};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char below[512];
        (void)snprintf(below, sizeof below, "%s/%s", places[i], name);
        if (weft_async_checkpoint_program(out, below)) return WEFT_OK;
    }
    return weft_error_set(
        err, WEFT_E_SYSTEM,
        "the templates are not beside this program, where %s/%s or %s/%s should be: install Weft with "
        "cmake --install, which brings them, and call that one",
        places[0], name, places[1], name);
}
