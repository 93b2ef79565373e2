/* Communicators that only have notes, in the scratch directory, which is the only search path. */
#ifndef WEFT_TEST_LAUNCH_FAKES_H
#define WEFT_TEST_LAUNCH_FAKES_H

#include "scratch.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

static inline const char *fakes_source(void) {
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source directory; ctest sets it");
    return source;
}

static inline void fakes_run(const char *command) {
    ck_assert_msg(system(command) == 0, "this command failed: %s", command);
}

/* launcher: its absolute path. launched: "A_RANK A_SIZE ..." */
static inline void fakes_build(const char *id, const char *launcher, const char *launched) {
    char command[4096];
    (void)snprintf(command, sizeof command,
                   "cc -std=c11 -fPIC -shared -fvisibility=hidden -I%s/sdk/include "
                   "-Wl,--version-script=%s/sdk/cmake/weft-plugin.map '-DFAKE_ID=\"%s\"' "
                   "'-DFAKE_LAUNCH=\"%s -n {ranks}\"' '-DFAKE_LAUNCHED=\"%s\"' %s/tests/launch/fake.c "
                   "-o %s/weft-comm-%s.so",
                   fakes_source(), fakes_source(), id, launcher, launched, fakes_source(), scratch, id);
    fakes_run(command);
}

static inline void fakes_alone(void) {
    (void)setenv("WEFT_PLUGIN_PATH", scratch, 1);
    (void)setenv("XDG_DATA_HOME", scratch, 1);
}

#endif
