/* host/plugin/crash.h: a crash names the file it happened in and what the host was doing.
 *
 *     weft: signal 11 (segmentation fault) in weft-optimizer-lion.so (sha256 5d41402abc4b), in lion prepare, step 12
 *
 * The record of what is being done is one text and one number, cheap enough to set before every call into a plugin.
 */
#ifndef WEFT_HOST_CRASH_H
#define WEFT_HOST_CRASH_H

#include <stdint.h>

/* Handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, on a stack of their own. Once, early in main. [main] */
void weft_crash_install(void);

/* What the host is about to do, such as "optimizer:lion create". The text must live until the next call; NULL: nothing
 * worth naming. [main] [hot] */
void weft_crash_doing(const char *what);

/* The optimizer step that runs; 0: none. [main] [hot] */
void weft_crash_step(uint64_t step);

/* The loader's: notes a file that was mapped at `address` (any address in it), and takes a new picture of all mapped
 * libraries. [main] */
void weft_crash_add(const char *sha256, const void *address);

#endif
