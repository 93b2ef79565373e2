/* host/tools/check/later_struct.h: structs as a later host of the same major version has them: longer. What is
 * behind the end that SDK 1.0 has is a pattern, which nobody may touch. */
#ifndef WEFT_HOST_TOOLS_CHECK_LATER_STRUCT_H
#define WEFT_HOST_TOOLS_CHECK_LATER_STRUCT_H

#include <weft/host.h>

enum { WEFT_LATER_BYTES = 48, WEFT_LATER_PATTERN = 0x77 }; /* how much longer, and what is there */
enum { WEFT_SHORTER_BYTES = 16 }; /* struct_size of a request that nobody may take: below that of all in SDK 1.0 */

/* A longer copy of n structs of `size` bytes, which their struct_size says; each is followed by `filler`. To be freed;
 * NULL: no memory. [any-thread] */
void *weft_later_copy(const void *from, size_t n, size_t size, uint8_t filler);
/* Followed by the pattern. Never NULL: without memory the process ends. To be freed, or read. [any-thread] */
void *weft_later_structs(const void *from, size_t n, size_t size);

/* What was written there: the n structs as the reader knows them, with their own struct_size; and what the writer must
 * not have touched is looked at. type: "weft_leaf". Frees `made`. [any-thread] */
void weft_later_read(void *to, size_t n, size_t size, void *made, const char *type);
/* The first such mistake of this process; "": none. [main] */
const char *weft_later_mistake(void);

/* A longer one of the two hosts of subject.h, which lives as long as the process. [main] */
const weft_host *weft_later_host(const weft_host *host);

#endif
