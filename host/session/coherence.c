/* host/session/coherence.c: see coherence.h. What is compared; how, is in facts.c. */
#include "session/coherence.h"

#include "base/hash.h"
#include "files/safetensors.h"
#include "session/facts.h"
#include "session/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
static weft_status compare_facts(const weft_peers *peers, weft_facts *facts, weft_status status, const char *what,
                                 weft_error *err) {
    if (weft_peers_alone(peers)) return status;
    status = weft_peers_agree(peers, status, err);
    return status == WEFT_OK ? weft_facts_compare(facts, peers, what, err) : status;
}

const weft_peers *weft_coherence_peers(const weft_engine *engine) {
    return engine->own_platform == NULL ? NULL : &engine->peers;
}

weft_status weft_coherence_run(const weft_peers *peers, const weft_run *run, const weft_device_info *device,
                               weft_status status, weft_error *err) {
    weft_facts facts = {0};
    if (weft_peers_alone(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) status = add_run(&facts, run, device, err);
    status = compare_facts(peers, &facts, status, "host, plugins, configuration or device", err);
    weft_facts_drop(&facts);
    return status;
}

/* ---- model, data and programs ---- */

weft_status weft_coherence_data(const weft_peers *peers, const weft_declared *declared, uint64_t rows,
                                weft_status status, weft_error *err) {
    weft_facts facts = {0};
    char hex[65];
    if (weft_peers_alone(peers)) return status;
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

weft_status weft_coherence_weights(const weft_peers *peers, const weft_run *run, weft_status status, weft_error *err) {
    weft_facts facts = {0};
    weft_safetensors *files = NULL;
    if (weft_peers_alone(peers) || run->settings.model.start == WEFT_START_FRESH) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) status = weft_safetensors_open_directory(&files, run->settings.model.path, err);
    status = weft_peers_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_files_add(&facts, peers, files->files, files->n_files, err);
    if (status == WEFT_OK) status = weft_facts_compare(&facts, peers, "the model's weights", err);
    weft_safetensors_close(files);
    weft_facts_drop(&facts);
    return status;
}

weft_status weft_coherence_programs(const weft_peers *peers, const weft_engine *engine, weft_status status,
                                    weft_error *err) {
    const weft_stage *train = &engine->plan.train, *evaluate = &engine->plan.evaluate;
    weft_facts facts = {0};
    if (weft_peers_alone(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK && train->program != NULL)
        weft_facts_add(&facts, "programs of training, all ranks'", "%016" PRIx64, train->identity);
    if (status == WEFT_OK && evaluate->program != NULL)
        weft_facts_add(&facts, "programs of evaluation, all ranks'", "%016" PRIx64, evaluate->identity);
    status = compare_facts(peers, &facts, status, "programs", err);
    weft_facts_drop(&facts);
    return status;
}
