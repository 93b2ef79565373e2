/* host/trial/usable.c: see usable.h. */
#include "trial/usable.h"

#include "trial/rule.h"
#include "plugin/call.h"

/* *works: what it says. What it does besides is judged. */
static weft_status ask(bool *works, weft_error *said, const weft_subject *subject, weft_error *err) {
    const weft_plugin *plugin = subject->loaded->plugin;
    const int64_t before = weft_subject_pieces();
    weft_plugin_call call;
    weft_status status;
    weft_plugin_call_begin(&call, subject->loaded, "works");
    *works = plugin->works(weft_subject_host(WEFT_POISON_ONE), said) == WEFT_OK;
    status = weft_plugin_call_end(&call, WEFT_OK, err);
    if (status == WEFT_OK && !*works && said->text[0] == '\0')
        return WEFT_BROKEN(err, "it says in works that it cannot work here, and not why");
    if (status == WEFT_OK && weft_subject_pieces() != before)
        return WEFT_BROKEN(err, "works keeps %lld pieces of memory of host->alloc",
                           (long long)(weft_subject_pieces() - before));
    return status;
}

weft_status weft_usable(const weft_subject *subject, weft_error *err) {
    const weft_plugin *plugin = subject->loaded->plugin;
    weft_error said = WEFT_ERROR_INIT, again = WEFT_ERROR_INIT;
    bool works = true, works_again = true;
    weft_status status = WEFT_OK;
    if (!WEFT_HAS(plugin, works) || plugin->works == NULL) return WEFT_OK;
    status = ask(&works, &said, subject, err);
    if (status == WEFT_OK) status = ask(&works_again, &again, subject, err);
    if (status == WEFT_OK && works != works_again)
        status = WEFT_BROKEN(err, "works says that it can%s work here, and asked again that it can%s: %s",
                             works ? "" : "not", works_again ? "" : "not", works ? again.text : said.text);
    if (status == WEFT_OK && !works) status = weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said.text);
    return status;
}
