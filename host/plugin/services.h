/* host/plugin/services.h: the host's side of weft/host.h, one table for the whole process. */
#ifndef WEFT_HOST_PLUGIN_SERVICES_H
#define WEFT_HOST_PLUGIN_SERVICES_H

#include <weft/host.h>

/* The table that every plugin receives; valid until the process ends. [any-thread] */
const weft_host *weft_services(void);

/* What the extension WEFT_HOST_WORLD shows; host/launch/world.h writes it. [main] */
weft_host_world *weft_services_world(void);

/* What the extension WEFT_HOST_EXCHANGE is from now on; NULL, at first: none. [main] */
void weft_services_offer_exchange(const weft_host_exchange *offered);

/* Lines above this level are not printed; WEFT_LOG_INFO at first. Returns what was so before. [main] */
int32_t weft_services_log_level(int32_t level);

/* Set in the environment: whatever a command's flags say, there are no lines but warnings and errors. */
#define WEFT_NO_NEWS "WEFT_SAYS_NO_NEWS"

/* A line that is printed at any level. [any-thread] */
void weft_services_say(int32_t level, const char *text);

/* Threads of parallel_for; 0: as many as OpenMP takes by itself, which is also the start. [main] */
void weft_services_threads(int32_t threads);

/* Bytes that plugins hold now through alloc, and the most that they ever held, overhead of the counting included.
 * [any-thread] */
int64_t weft_services_bytes(void);
int64_t weft_services_peak_bytes(void);

#endif
