/* host/adapter/attach.h: attaches an adapter to a declared model, after other adapters. */
#ifndef WEFT_HOST_ADAPTER_ATTACH_H
#define WEFT_HOST_ADAPTER_ATTACH_H

#include "model/declare.h"

/* Creates the adapter and lets it extend the model at its sites. Fewer than WEFT_MOST_ADAPTERS may have joined. The
 * model owns the adapter from then on, also after a failure. source: the saved adapter to continue; NULL: a new one.
 * The error message is the plugin's, or describes its mistake. */
weft_status weft_adapter_attach(weft_declared *declared, const weft_host *host, const weft_adapter_plugin *plugin,
                                const void *plugin_config, const weft_adapter_source *source, weft_error *err);

#endif
