/* host/run/coherence.c: see coherence.h. What is compared; how, is in facts.c. */
#include "run/coherence.h"

#include "base/hash.h"
#include "base/words.h"
#include "base/safetensors.h"
#include "program/plugin_answers.h"
#include "run/facts.h"
#include "run/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the run ---- */

static weft_status hash_program(char hex[65], weft_error *err) {
    static const char name[] = "the program's own file";
    const int descriptor = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    weft_status status = WEFT_OK;
    if (descriptor < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be opened: %s", name, strerror(errno));
    status = weft_hash_file(hex, descriptor, name, err);
    (void)close(descriptor);
    return status;
}

static void add_key(void *facts, const char *key, const char *value) {
    weft_facts_add(facts, key, "%s", value[0] == '\0' ? "\"\"" : value);
}

static void add_plugins(weft_facts *facts, const weft_run *run) {
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const weft_loaded *loaded = run->parts[i].loaded;
        char name[64];
        if (loaded == NULL) continue;
        if (i > WEFT_PART_ADAPTER) (void)snprintf(name, sizeof name, "plugin adapter %d", i - WEFT_PART_ADAPTER + 1);
        else (void)snprintf(name, sizeof name, "plugin %s", weft_part_name(i));
        weft_facts_add(facts, name, "%s %s, sha256 %s", loaded->plugin->id, loaded->plugin->version, loaded->sha256);
    }
}

static weft_status add_run(weft_facts *facts, const weft_run *run, const weft_device_info *device, weft_error *err) {
    char hex[65];
    const weft_status status = hash_program(hex, err);
    if (status != WEFT_OK) return status;
    weft_facts_add(facts, "weft", "%s, sha256 %s", WEFT_VERSION, hex);
    weft_facts_add(facts, "weft's compiler", "%s", __VERSION__);
    add_plugins(facts, run);
    weft_config_each_same(run->config, add_key, facts);
    if ((device->flags & WEFT_DEVICE_SHARES_MACHINE) == 0)
        weft_facts_add(facts, "the device's model", "%s", device->name);
    weft_facts_add(facts, "the device's instruction set", "%s", device->isa);
    weft_facts_add(facts, "the device's backend", "%s", device->backend);
    return WEFT_OK;
}

/* Facts that are ready on this rank, unless something failed; then nothing is compared, on no rank. */
static weft_status compare_facts(const weft_process_group *peers, weft_facts *facts, weft_status status,
                                 const char *what, weft_error *err) {
    if (weft_process_group_is_single(peers)) return status;
    status = weft_process_group_agree(peers, status, err);
    return status == WEFT_OK ? weft_facts_compare(facts, peers, what, err) : status;
}

const weft_process_group *weft_coherence_peers(const weft_engine *engine) {
    return engine->own_process_context == NULL ? NULL : &engine->peers;
}

weft_status weft_coherence_run(const weft_process_group *peers, const weft_run *run, const weft_device_info *device,
                               weft_status status, weft_error *err) {
    weft_facts facts = {0};
    if (weft_process_group_is_single(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) status = add_run(&facts, run, device, err);
    status = compare_facts(peers, &facts, status, "host, plugins, configuration or device", err);
    weft_facts_drop(&facts);
    return status;
}

/* ---- model and data ---- */

weft_status weft_coherence_data(const weft_process_group *peers, const weft_declared *declared, uint64_t rows,
                                weft_status status, weft_error *err) {
    weft_facts facts = {0};
    char hex[65];
    if (weft_process_group_is_single(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) {
        weft_facts_add(&facts, "the rows of the data", "%016" PRIx64, rows);
        status = weft_hash_text(hex, declared->config_text, declared->config_bytes, err);
        if (status == WEFT_OK) weft_facts_add(&facts, "the model's config.json", "sha256 %s", hex);
    }
    status = compare_facts(peers, &facts, status, "data or model", err);
    weft_facts_drop(&facts);
    return status;
}

weft_status weft_coherence_weights(const weft_process_group *peers, const weft_run *run, weft_status status,
                                   weft_error *err) {
    weft_facts facts = {0};
    weft_safetensors *files = NULL;
    if (weft_process_group_is_single(peers) || run->settings.model.start == WEFT_START_FRESH) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) status = weft_safetensors_open_directory(&files, run->settings.model.path, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_files_add(&facts, peers, files->files, files->n_files, err);
    if (status == WEFT_OK) status = weft_facts_compare(&facts, peers, "the model's weights", err);
    weft_safetensors_close(files);
    weft_facts_drop(&facts);
    return status;
}

/* ---- what plugins have answered ---- */

/* The lowest rank that has another answer to the first question on which any differs; -1: there is none. numbers: of
 * each rank 1 + the question, 0: none. */
static int32_t find_other(const int32_t *numbers, int32_t world, int32_t *n) {
    int32_t found = -1;
    for (int32_t rank = 1; rank < world; rank++)
        if (numbers[rank] != 0 && (found < 0 || numbers[rank] < numbers[found])) found = rank;
    *n = 0;
    for (int32_t rank = 1; rank < world && found >= 0; rank++) *n += numbers[rank] == numbers[found];
    return found;
}

/* first: rank 0's answers; rank 0 has the sentence. [collective] */
static weft_status tell_other(const weft_process_group *peers, const weft_plan *plan, const weft_plan_answers *first,
                              const int32_t *numbers, weft_error *err) {
    int32_t n = 0;
    const int32_t other = find_other(numbers, peers->world, &n);
    weft_plan_answers theirs = plan->answers;
    char here[64];
    weft_status status = WEFT_OK;
    if (other < 0) return WEFT_OK;
    status = peers->share(peers->context, &theirs, (int64_t)sizeof theirs, other, err);
    if (status != WEFT_OK) return status;
    (void)snprintf(here, sizeof here, "on rank %d", (int)other);
    if (n > 1) weft_words_append(here, sizeof here, " and %d more", (int)n - 1);
    status = weft_answers_report_difference(plan, numbers[other] - 1, here, &theirs, "on rank 0", first, err);
    if (err != NULL) weft_words_append(err->text, sizeof err->text, "; nothing was trained");
    if (peers->rank == 0) return status;
    if (err != NULL) {
        err->code = WEFT_E_PEER;
        err->text[0] = '\0'; /* said once */
    }
    return WEFT_E_PEER;
}

weft_status weft_coherence_answers(const weft_process_group *peers, const weft_engine *engine, weft_status status,
                                   weft_error *err) {
    weft_plan_answers first = {0};
    int32_t part = 0, *numbers = NULL;
    if (weft_process_group_is_single(peers)) return status;
    numbers = calloc((size_t)peers->world, sizeof *numbers);
    if (status == WEFT_OK && numbers == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %d ranks", (int)peers->world);
    status = weft_process_group_agree(peers, status, err);
    if (status != WEFT_OK) goto done;
    if (peers->rank == 0) first = engine->plan.answers;
    status = weft_process_group_broadcast(peers, &first, (int64_t)sizeof first, err);
    if (status != WEFT_OK) goto done;
    part = weft_answers_part(&first, &engine->plan.answers);
    status = peers->gather(peers->context, numbers, part < WEFT_N_ANSWERS ? 1 + part : 0, err);
    if (status == WEFT_OK) status = tell_other(peers, &engine->plan, &first, numbers, err);
done:
    free(numbers);
    return status;
}
