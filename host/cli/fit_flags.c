/* host/cli/fit_flags.c: see fit_flags.h. */
#include "cli/fit_flags.h"

#include "config/number.h"

bool weft_command_room(const weft_args *args, int64_t *bytes, weft_error *err) {
    const char *text = weft_args_value(args, "fit");
    *bytes = 0;
    if (text != NULL && !weft_number_bytes(bytes, text)) {
        (void)weft_error_set(
            err, WEFT_E_USER,
            "--fit '%.80s' is not a size. Allowed: a number with its unit, as 80GB, 24GiB or 512MB (GB: "
            "powers of 1000; GiB: of 1024)",
            text);
        return false;
    }
    if (text != NULL && weft_args_declares(args, "no-fit") && weft_args_has(args, "no-fit")) {
        (void)weft_error_set(err, WEFT_E_USER,
                             "--fit sets the available memory and --no-fit ignores it: use one of them");
        return false;
    }
    return true;
}

weft_fit_question weft_command_question(const weft_args *args, const weft_session *session, int64_t bytes) {
    weft_fit_question out = {.session = session, .path = weft_args_config(args)};
    out.overrides = weft_args_overrides(args, &out.n_overrides);
    out.room = weft_available_memory_find(bytes, &session->engine->device_info);
    return out;
}

weft_status weft_command_check_room(const weft_args *args, const weft_session *session, int64_t bytes,
                                    weft_error *err) {
    const weft_fit_question question = weft_command_question(args, session, bytes);
    weft_fit fit;
    if (weft_args_has(args, "no-fit")) return WEFT_OK;
    weft_fit_check(&fit, &question, NULL);
    weft_fit_warn(&fit, session->run->host);
    return fit.fits ? WEFT_OK : weft_fit_refuse(&fit, err);
}
