/* The model that `weft plugins new` writes, in SOURCE, with a wider MLP on rank 2. */
#include "changed/changed.h"

#include SOURCE

static weft_status create(weft_model **out, const weft_host *host, const void *config, const weft_model_source *source,
                          weft_error *err) {
    const weft_status status = original.create(out, host, config, source, err);
    if (status == WEFT_OK && this_rank(0) == 2) (*out)->inner += 8;
    return status;
}

static void change(weft_model_plugin *to) {
    to->create = create;
}
