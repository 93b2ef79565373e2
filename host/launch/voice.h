/* host/launch/voice.h: each line that a rank prints carries its rank, "[2] weft train: ..."; those that do not speak
 * print errors alone. */
#ifndef WEFT_HOST_LAUNCH_VOICE_H
#define WEFT_HOST_LAUNCH_VOICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <weft/base.h>

/* From here on, for stdout and stderr of this process. Once. [main] */
void weft_voice_set(int32_t rank, bool speaks);

/* `--ranks N`: stdout of this process, which starts the ranks, is a terminal: rank 0 may write there itself, for what
 * goes through a launcher comes late and is no terminal. By the environment, before they are started. [main] */
weft_status weft_voice_offer_terminal(weft_error *err);

/* stdout as it was before, for what rank 0 says for all: a result, which a program may read. */
FILE *weft_voice_plain(void);

#endif
