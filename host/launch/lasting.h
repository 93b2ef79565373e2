/* host/launch/lasting.h: a call of a plugin that does not come back says so while it lasts.
 *
 * Whoever waits for this process, a rank or a person, sees nothing but silence else: the watcher of ranks takes none
 * that computes for one that hangs. One thread looks at what the main thread is doing (crash.h) and where the pass is
 * (pulse.h); the calls themselves cost two stores more, and a name where another process reads along. Nothing is
 * stopped, unless who has nothing to lose asks for it; but where a call has ended the main thread nothing is left to
 * wait for, and the process ends with a sentence. */
#ifndef WEFT_HOST_LAUNCH_LASTING_H
#define WEFT_HOST_LAUNCH_LASTING_H

#include <stdbool.h>

/* In each such line, and in no other one. */
#define WEFT_LASTING_WORDS "and goes on; whoever needs this process waits"

/* From now on a call that has lasted `seconds` is told, the same slot of a plugin once; 0: none is. Each begin has its
 * end; of several the first one's seconds count. Without a thread for it nothing is told. [main] */
void weft_lasting_begin(double seconds);
/* A call that is told, or 60 s long where none is, is given up from now on when a signal has asked to stop, or when
 * `most` seconds from now are over: end(stopped, "optimizer:lion (/home/you/...) has been in its prepare for 60 s, in
 * training, in step 12") has to end the process, and is called by the thread that looks. NULL: never, as at first. */
void weft_lasting_gives_up(void (*end)(bool stopped, const char *call), double most);
void weft_lasting_end(void);

#endif
