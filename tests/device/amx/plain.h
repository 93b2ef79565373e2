/* plain.h: the AMX tile instructions in plain C, as specified in the processor manual. panels_amx.c is compiled over
 * them for test devices on processors without tiles. Misuse ends the program with a message. */
#ifndef WEFT_TEST_DEVICE_AMX_PLAIN_H
#define WEFT_TEST_DEVICE_AMX_PLAIN_H

#include "amx.h"

void plain_configure(const amx_configuration *configuration);
void plain_release(void);
void plain_zero(int tile);
void plain_load(int tile, const void *at, int64_t apart);
void plain_store(int tile, void *at, int64_t apart);
void plain_dot(int sum, int a, int b);

#if defined(WEFT_AMX_PLAIN)
#define TILE_CONFIGURE(configuration) plain_configure(configuration)
#define TILE_RELEASE()                plain_release()
#define TILE_ZERO(t)                  plain_zero(t)
#define TILE_LOAD(t, at, apart)       plain_load(t, at, apart)
#define TILE_STORE(t, at, apart)      plain_store(t, at, apart)
#define TILE_DOT(sum, a, b)           plain_dot(sum, a, b)
#endif

#endif
