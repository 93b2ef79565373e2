/* host/launch/lasting.h: a call of a plugin that does not come back says so while it lasts.
 *
 * Whoever waits for this process, a rank or a person, sees nothing but silence else: the watcher of ranks takes none
 * that computes for one that hangs. One thread looks at what the main thread is doing (crash.h) and where the pass is
 * (pulse.h); the calls themselves cost two stores more. Nothing is stopped; but where a
 * call has ended the main thread there is nothing left to wait for, and the process ends with a sentence. */
#ifndef WEFT_HOST_LAUNCH_LASTING_H
#define WEFT_HOST_LAUNCH_LASTING_H

/* In each such line, and in no other one. */
#define WEFT_LASTING_WORDS "and goes on; whoever needs this process waits"

/* From now on a call that has lasted `seconds` is told, the same slot of a plugin once; 0: none is. Each begin has its
 * end; of several the first one's seconds count. Without a thread for it nothing is told. [main] */
void weft_lasting_begin(double seconds);
void weft_lasting_end(void);

#endif
