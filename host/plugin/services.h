/* host/plugin/services.h: the host's implementation of weft/host.h, one table for the process. */
#ifndef WEFT_HOST_PLUGIN_SERVICES_H
#define WEFT_HOST_PLUGIN_SERVICES_H

#include <weft/host.h>

/* Returns the table that every plugin receives; valid until the process ends. [any-thread] */
const weft_host *weft_services(void);

/* Returns the data of the extension WEFT_HOST_WORLD; host/launch/world.h writes it. [main] */
weft_host_world *weft_services_world(void);

/* Sets the extension WEFT_HOST_EXCHANGE; NULL, the default: not available. [main] */
void weft_services_offer_exchange(const weft_host_exchange *offered);

/* Sets the log level: lines above it are not printed; WEFT_LOG_INFO at first. Returns the previous level. [main] */
int32_t weft_services_log_level(int32_t level);

/* Environment variable: if set, only warnings and errors are printed, independent of a command's flags. */
#define WEFT_NO_NEWS "WEFT_SAYS_NO_NEWS"

/* Prints a line at any log level. [any-thread] */
void weft_services_print(int32_t level, const char *text);

/* Returns the number of processors that this process may run on. [any-thread] */
int32_t weft_services_processors(void);

/* Returns the bytes that plugins have allocated through alloc, including the accounting's overhead. [any-thread] */
int64_t weft_services_bytes(void);

#endif
