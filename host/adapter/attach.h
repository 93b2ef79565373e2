/* host/adapter/attach.h: an adapter joins a model that has declared itself, and others that have joined before. */
#ifndef WEFT_HOST_ADAPTER_ATTACH_H
#define WEFT_HOST_ADAPTER_ATTACH_H

#include "model/declare.h"

/* Fewer than WEFT_MOST_ADAPTERS have joined. Makes the adapter, shows it the sites and lets it add to the model, which
 * owns it from then on; also after a failure. source: what it continues; NULL: it is new. The failure's sentence is the
 * plugin's, or says what it did. */
weft_status weft_adapter_attach(weft_declared *declared, const weft_host *host, const weft_adapter_plugin *plugin,
                                const void *plugin_config, const weft_adapter_source *source, weft_error *err);

#endif
