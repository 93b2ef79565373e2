/* Two plugins compiled with -DWEFT_STATIC=<id>, in one program. Prints their ids. */
#include <weft/plugin.h>

extern const char weft_plugin_note_sgd[], weft_plugin_note_adamw[];
extern weft_plugin_entry_fn weft_plugin_entry_sgd, weft_plugin_entry_adamw;

int main(void) {
    weft_error err = WEFT_ERROR_INIT;
    const weft_plugin_list *sgd = weft_plugin_entry_sgd(NULL, &err), *adamw = weft_plugin_entry_adamw(NULL, &err);
    if (strstr(weft_plugin_note_sgd, "optimizer/1 sgd ") == NULL) return 1;
    if (strstr(weft_plugin_note_adamw, "optimizer/1 adamw ") == NULL) return 1;
    (void)printf("%s %s", sgd->plugins[0].id, adamw->plugins[0].id);
    return 0;
}
