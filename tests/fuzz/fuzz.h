/* fuzz.h: shared by the fuzz targets. A target is one file with LLVMFuzzerTestOneInput. libFuzzer generates inputs
 * (tests/fuzz.sh); in the regular build, replay.c provides main and runs the files of seeds/.
 *
 * Every input must neither crash, leak, loop nor use unbounded memory. An error must have a printable message. */
#ifndef WEFT_TEST_FUZZ_H
#define WEFT_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts if a failure has no message of its status, or one with control characters. Accepts WEFT_OK. */
void fuzz_judge(weft_status status, const weft_error *err);

/* Returns a directory of this process, in memory if supported, removed at exit. */
const char *fuzz_directory(void);

/* Writes a file in it with exactly these bytes. The path is valid until the next call; `name` belongs to the caller. */
const char *fuzz_file(const char *name, const void *bytes, size_t n);

/* Returns a plugin that is linked into the program. */
struct weft_plugin_list;
struct weft_host;
typedef const struct weft_plugin_list *fuzz_entry(const struct weft_host *host, weft_error *err);
const struct weft_plugin *fuzz_plugin(fuzz_entry *entry);

/* Returns its configuration: defaults and the n overrides of the section of its kind. Freed with fuzz_config_free. */
struct weft_config;
void *fuzz_config(struct weft_config **config, const struct weft_plugin *plugin, const char *const *overrides,
                  size_t n);
void fuzz_config_free(struct weft_config *config, void *filled);

#endif
