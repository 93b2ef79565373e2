/* host/train/coherence.c: see coherence.h. What is compared; how, is in facts.c. */
#include "train/coherence.h"

#include "model/safetensors.h"
#include "report/hash.h"
#include "train/facts.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

/* ---- the run ---- */

static weft_status hash_program(char hex[65], weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    static char block[1 << 16];
    weft_hash hash = {0};
    size_t n = 0;
    FILE *file = fopen("/proc/self/exe", "re");
    weft_status status = WEFT_OK;
    if (file == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "the program's own file cannot be read: %s", strerror(errno));
    status = weft_hash_start(&hash, err);
    while (status == WEFT_OK && (n = fread(block, 1, sizeof block, file)) > 0) weft_hash_put(&hash, block, n);
    if (status == WEFT_OK && ferror(file))
        status = weft_error_set(err, WEFT_E_SYSTEM, "the program's own file cannot be read: %s", strerror(errno));
    if (status == WEFT_OK) status = weft_hash_finish(&hash, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    weft_hash_free(&hash);
    (void)fclose(file);
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
        (void)snprintf(name, sizeof name, "plugin %s", weft_part_name(i));
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
    weft_facts_add(facts, "the device's instruction set", "%s", device->isa);
    weft_facts_add(facts, "the device's backend", "%s", device->backend);
    return WEFT_OK;
}

/* Facts that are ready on this rank, unless something failed; then nothing is compared, on no rank. */
static weft_status compare(const weft_peers *peers, weft_facts *facts, weft_status status, const char *what,
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
    status = compare(peers, &facts, status, "host, plugins, configuration or device", err);
    weft_facts_drop(&facts);
    return status;
}

/* ---- model, data and programs ---- */

weft_status weft_coherence_data(const weft_peers *peers, const weft_session *session, weft_status status,
                                weft_error *err) {
    weft_facts facts = {0};
    char hex[65];
    if (weft_peers_alone(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) {
        const weft_declared *declared = session->engine->declared;
        weft_facts_add(&facts, "the rows of the data", "%016" PRIx64, session->data_info.fingerprint);
        status = weft_hash_text(hex, declared->config_text, declared->config_bytes, err);
        if (status == WEFT_OK) weft_facts_add(&facts, "the model's config.json", "sha256 %s", hex);
    }
    status = compare(peers, &facts, status, "data or model", err);
    weft_facts_drop(&facts);
    return status;
}

/* Of blocks that are spread evenly over a file, its header and its end among them: reading all of it on every rank
 * would cost a start as much as the weights themselves. */
static weft_status hash_blocks(char hex[65], const weft_tensor_file *file, weft_error *err) {
    enum { BLOCKS = 64, BLOCK = 4096 };
    unsigned char digest[WEFT_HASH_BYTES], block[BLOCK];
    weft_hash hash = {0};
    const size_t last = file->bytes > BLOCK ? file->bytes - BLOCK : 0;
    weft_status status = weft_hash_start(&hash, err);
    for (size_t i = 0; i < BLOCKS && status == WEFT_OK; i++) {
        const ssize_t n = pread(file->descriptor, block, BLOCK, (off_t)(last * i / (BLOCKS - 1)));
        if (n < 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", file->path, strerror(errno));
        else weft_hash_put(&hash, block, (size_t)n);
    }
    if (status == WEFT_OK) status = weft_hash_finish(&hash, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    weft_hash_free(&hash);
    return status;
}

static weft_status add_weights(weft_facts *facts, const char *directory, weft_error *err) {
    weft_safetensors *files = NULL;
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    for (int32_t i = 0; status == WEFT_OK && i < files->n_files; i++) {
        const char *slash = strrchr(files->files[i].path, '/');
        char hex[65];
        status = hash_blocks(hex, &files->files[i], err);
        if (status == WEFT_OK)
            weft_facts_add(facts, slash == NULL ? files->files[i].path : slash + 1, "%zu bytes, sha256 of blocks %s",
                           files->files[i].bytes, hex);
    }
    weft_safetensors_close(files);
    return status;
}

weft_status weft_coherence_weights(const weft_peers *peers, const weft_run *run, weft_status status, weft_error *err) {
    weft_facts facts = {0};
    if (weft_peers_alone(peers) || run->settings.model.start == WEFT_START_FRESH) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK) status = add_weights(&facts, run->settings.model.path, err);
    status = compare(peers, &facts, status, "the model's weights", err);
    weft_facts_drop(&facts);
    return status;
}

weft_status weft_coherence_programs(const weft_peers *peers, const weft_engine *engine, weft_status status,
                                    weft_error *err) {
    const weft_stage *train = &engine->train, *evaluate = &engine->evaluate;
    weft_facts facts = {0};
    if (weft_peers_alone(peers)) return status;
    if (status == WEFT_OK) status = weft_facts_begin(&facts, err);
    if (status == WEFT_OK && train->program != NULL)
        weft_facts_add(&facts, "programs of training, all ranks'", "%016" PRIx64, train->identity);
    if (status == WEFT_OK && evaluate->program != NULL)
        weft_facts_add(&facts, "programs of evaluation, all ranks'", "%016" PRIx64, evaluate->identity);
    status = compare(peers, &facts, status, "programs", err);
    weft_facts_drop(&facts);
    return status;
}
