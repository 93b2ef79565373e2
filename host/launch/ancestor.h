/* host/launch/ancestor.h: the launcher that started this process, where it runs on this machine. */
#ifndef WEFT_HOST_LAUNCH_ANCESTOR_H
#define WEFT_HOST_LAUNCH_ANCESTOR_H

/* Its stderr, opened anew: what is written there arrives even when the launcher gives up those of its ranks first. note: of
 * the communicator's plugin, with the launcher's path (weft/comm.h). -1: no such process is above this one, or its stderr
 * cannot be opened. */
int weft_ancestor_stderr(const char *note);

#endif
