/* fuzz.h: what the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: libFuzzer draws the inputs
 * (tests/fuzz.sh), and replay.c, which is its main in the ordinary build, gives it those that are kept in seeds/.
 *
 * What is held of every input: nothing crashes, leaks, loops or grows without bound, and what is refused is refused
 * with a sentence that a terminal can show. */
#ifndef WEFT_TEST_FUZZ_H
#define WEFT_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process unless a failure has a sentence without a control character. Takes WEFT_OK, too. */
void fuzz_judge(weft_status status, const weft_error *err);

/* A directory of this process, in memory where the system has such; it goes when the process ends. */
const char *fuzz_directory(void);

/* A file in it that holds these bytes and no more; the name stays the caller's, the path until the next call. */
const char *fuzz_file(const char *name, const void *bytes, size_t n);

/* The table of a plugin that is linked into the program. */
struct weft_plugin_list;
struct weft_host;
typedef const struct weft_plugin_list *fuzz_entry(const struct weft_host *host, weft_error *err);
const struct weft_plugin *fuzz_plugin(fuzz_entry *entry);

/* Its configuration: defaults, and the n overrides; section: of its kind. The caller gives both back with
 * fuzz_config_free. */
struct weft_config;
void *fuzz_config(struct weft_config **config, const struct weft_plugin *plugin, const char *const *overrides,
                  size_t n);
void fuzz_config_free(struct weft_config *config, void *filled);

#endif
