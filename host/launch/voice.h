/* host/launch/voice.h: each line that a rank prints carries its rank, "[2] weft train: ..."; those that do not speak
 * print errors alone. */
#ifndef WEFT_HOST_LAUNCH_VOICE_H
#define WEFT_HOST_LAUNCH_VOICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* From here on, for stdout and stderr of this process. Once. [main] */
void weft_voice_set(int32_t rank, bool speaks);

/* stdout as it was before, for what rank 0 says for all: a result, which a program may read. */
FILE *weft_voice_plain(void);

#endif
