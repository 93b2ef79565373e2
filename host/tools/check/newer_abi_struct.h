/* host/tools/check/newer_abi_struct.h: structs as a later host of the same major version has them: longer. What is
 * behind the end that SDK 1.0 has is a pattern, which nobody may touch. */
#ifndef WEFT_HOST_TOOLS_CHECK_NEWER_ABI_STRUCT_H
#define WEFT_HOST_TOOLS_CHECK_NEWER_ABI_STRUCT_H

#include <weft/host.h>

enum { WEFT_NEWER_ABI_BYTES = 48, WEFT_NEWER_ABI_PATTERN = 0x77 }; /* how much longer, and what is there */
enum { WEFT_SHORTER_BYTES = 16 }; /* struct_size of a request that nobody may take: below that of all in SDK 1.0 */

/* A longer copy of n structs of `size` bytes, which their struct_size says; each is followed by `filler`. To be freed;
 * NULL: no memory. [any-thread] */
void *weft_newer_abi_copy(const void *from, size_t n, size_t size, uint8_t filler);
/* Followed by the pattern. Never NULL: without memory the process ends. To be freed, or read. [any-thread] */
void *weft_newer_abi_structs(const void *from, size_t n, size_t size);

/* What was written there: the n structs as the reader knows them, with their own struct_size; and what the writer must
 * not have touched is looked at. type: "weft_micro_batch". Frees `made`. [any-thread] */
void weft_newer_abi_read(void *to, size_t n, size_t size, void *made, const char *type);
/* The first such mistake of this process; "": none. [main] */
const char *weft_newer_abi_error(void);

/* A longer one of the two hosts of plugin_under_test.h, which lives as long as the process. [main] */
const weft_host *weft_newer_abi_host(const weft_host *host);

#endif
