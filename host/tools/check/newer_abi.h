/* host/tools/check/newer_abi.h: newer-ABI shim: tests a plugin in a host of a later minor version, which uses longer
 * structs.
 *
 * The shim replaces the plugin's table by one that forwards each call with longer structs, whose extra bytes have a
 * fixed pattern. A device has no shim: its rules lengthen the arguments themselves. Request structs are unchanged up to
 * the known end, and arrays have wider strides. In answer structs (docs/abi.md) the plugin must not write beyond the
 * known end, nor change struct_size. A plugin must therefore return the same answers through this table. Structs are
 * never shorter than in SDK 1.0. */
#ifndef WEFT_HOST_TOOLS_CHECK_NEWER_ABI_H
#define WEFT_HOST_TOOLS_CHECK_NEWER_ABI_H

#include "tools/check/plugin_under_test.h"

#include <weft/host.h>

enum { WEFT_NEWER_ABI_BYTES = 48, WEFT_NEWER_ABI_PATTERN = 0x77 }; /* number of extra bytes, and their content */
enum { WEFT_SHORTER_BYTES = 16 }; /* an invalid struct_size: below that of all structs in SDK 1.0 */

/* Returns a longer copy of n structs of `size` bytes, with struct_size set accordingly. `filler` fills the extra bytes.
 * The caller frees it. [any-thread] */
void *weft_newer_abi_copy(const void *from, size_t n, size_t size, uint8_t filler);
/* Returns a longer copy filled with the pattern. Freed by the caller or weft_newer_abi_read. [any-thread] */
void *weft_newer_abi_structs(const void *from, size_t n, size_t size);

/* Copies the n structs of this type ("weft_micro_batch") back, checks the extra bytes, and frees `made`.
 * [any-thread] */
void weft_newer_abi_read(void *to, size_t n, size_t size, void *made, const char *type);

/* Returns the plugin with the shim's table; one per process. [main] */
const weft_loaded *weft_newer_abi_loaded(const weft_loaded *loaded);

/* Returns the plugin under test with the shim's table, created once per process. [main] */
const weft_plugin_under_test *weft_newer_abi(const weft_plugin_under_test *tested);

/* Checks an answer through the shim, for a call that succeeds without it. WEFT_E_PLUGIN with a message: the call
 * failed, wrote out of bounds, or returned a different answer; what: "units". [main] */
weft_status weft_newer_abi_check(weft_status status, bool is_same, const char *what, weft_error *err);

#endif
