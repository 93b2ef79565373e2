/* host/run/coherence.c: compares facts among ranks, and collects those of a run. */
#include "run/coherence.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "run/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- facts ---- */

enum {
    MOST_VALUE = 56, /* characters of a column */
    MOST_SHOWN = 4,  /* kinds of differences */
    MOST_NAMED = 4   /* ranks */
};

void weft_facts_add(char **facts, const char *name, const char *value) {
    char *clean = weft_strdup(value), *all = NULL;
    for (char *at = clean; *at != '\0'; at++)
        if (*at == '\t' || *at == '\n') *at = ' ';
    all = weft_text_of("%s%s\t%s\n", *facts == NULL ? "" : *facts, name, clean);
    free(clean);
    free(*facts);
    *facts = all;
}

/* A line "name<TAB>value". */
typedef struct line {
    const char *name, *value, *next;
    int name_length, value_length;
} line;

static bool next_line(line *out, const char *at) {
    const char *tab = strchr(at, '\t'), *end = strchr(at, '\n');
    if (tab == NULL || end == NULL || tab > end) return false;
    out->name = at;
    out->name_length = (int)(tab - at);
    out->value = tab + 1;
    out->value_length = (int)(end - tab - 1);
    out->next = end + 1;
    return true;
}

static bool find_line(line *out, const char *text, const line *like) {
    while (next_line(out, text)) {
        if (out->name_length == like->name_length && memcmp(out->name, like->name, (size_t)like->name_length) == 0)
            return true;
        text = out->next;
    }
    out->value = "-";
    out->value_length = 1;
    return false;
}

/* Prints the differences as lines "name<TAB>value of first<TAB>value of other"; a missing value is "-". */
static void list_differences_of(FILE *out, const char *first, const char *other) {
    line a, b;
    for (const char *at = first; next_line(&a, at); at = a.next)
        if (!find_line(&b, other, &a) || a.value_length != b.value_length ||
            memcmp(a.value, b.value, (size_t)a.value_length) != 0)
            (void)fprintf(out, "%.*s\t%.*s\t%.*s\n", a.name_length, a.name, a.value_length, a.value, b.value_length,
                          b.value);
    for (const char *at = other; next_line(&b, at); at = b.next)
        if (!find_line(&a, first, &b))
            (void)fprintf(out, "%.*s\t-\t%.*s\n", b.name_length, b.name, b.value_length, b.value);
}

/* Prints up to `width` characters from `from` on: "...characters...". */
static void print_value(FILE *file, const char *value, int length, int from, int width) {
    char text[MOST_VALUE + 1];
    const char *prefix = from > 0 ? "..." : "";
    const int room = MOST_VALUE - (int)strlen(prefix), rest = length - from;
    if (rest > room) (void)snprintf(text, sizeof text, "%s%.*s...", prefix, room - 3, value + from);
    else (void)snprintf(text, sizeof text, "%s%.*s", prefix, rest, value + from);
    (void)fprintf(file, "  %-*s", width, text);
}

/* Prints differences as columns. */
static void print_lines(FILE *file, const char *lines, const char *ranks) {
    line l;
    int name = 0, value = (int)strlen("rank 0");
    for (const char *at = lines; next_line(&l, at); at = l.next) {
        const int first = (int)strcspn(l.value, "\t");
        if (l.name_length > name) name = l.name_length;
        if (first > value) value = first < MOST_VALUE ? first : MOST_VALUE;
    }
    (void)fprintf(file, "%-*s  %-*s  %s\n", name, "", value, "rank 0", ranks);
    for (const char *at = lines; next_line(&l, at); at = l.next) {
        const int first = (int)strcspn(l.value, "\t"), other = l.value_length - first - 1;
        int same = 0, from = 0; /* long values are printed from shortly before their first difference */
        while (same < first && same < other && l.value[same] == l.value[first + 1 + same]) same++;
        if ((first > MOST_VALUE || other > MOST_VALUE) && same >= MOST_VALUE - 3) from = same - 12;
        (void)fprintf(file, "%-*.*s", name, l.name_length, l.name);
        print_value(file, l.value, first, from, value);
        print_value(file, l.value + first + 1, other, from, 0);
        (void)fputc('\n', file);
    }
}

/* Prints "rank 3" or "ranks 1, 3, 5 and 60 more": those with this number; 0: all that have one. */
static void name_ranks(char *out, size_t size, const int32_t *numbers, int32_t world, int32_t number) {
    int32_t n = 0, named = 0;
    for (int32_t rank = 1; rank < world; rank++) n += numbers[rank] != 0 && (number == 0 || numbers[rank] == number);
    (void)snprintf(out, size, "rank%s", n == 1 ? "" : "s");
    for (int32_t rank = 1; rank < world && named < MOST_NAMED; rank++) {
        if (numbers[rank] == 0 || (number != 0 && numbers[rank] != number)) continue;
        weft_words_append(out, size, "%s %d", named++ == 0 ? "" : ",", (int)rank);
    }
    if (n > named) weft_words_append(out, size, " and %d more", (int)(n - named));
}

/* Prints each kind of difference on rank 0's stderr. numbers: [world] of each rank, the same for the same
 * differences; 0: no differences. */
static weft_status report_differences(const char *own, const weft_process_group *peers, const int32_t *numbers,
                                      const char *what, weft_error *err) {
    char ranks[80];
    int32_t shown = 0;
    weft_status status = WEFT_OK;
    for (int32_t rank = 1; rank < peers->world && status == WEFT_OK; rank++) {
        int64_t bytes = (int64_t)strlen(own) + 1;
        int32_t before = 1;
        void *text = NULL;
        while (before < rank && numbers[before] != numbers[rank]) before++;
        if (numbers[rank] == 0 || before < rank || shown++ >= MOST_SHOWN) continue;
        name_ranks(ranks, sizeof ranks, numbers, peers->world, numbers[rank]);
        status = weft_share_array(peers, &text, &bytes, own, 1, rank, err);
        if (status == WEFT_OK && peers->rank == 0) print_lines(stderr, text, ranks);
        free(text);
    }
    if (status != WEFT_OK || shown == 0) return status;
    name_ranks(ranks, sizeof ranks, numbers, peers->world, 0);
    (void)weft_error_set(err, WEFT_E_PEER, "%s and rank 0 differ in %s, as shown above; nothing was trained", ranks,
                         what);
    if (err != NULL && peers->rank != 0) err->text[0] = '\0'; /* rank 0 reports it */
    return WEFT_E_PEER;
}

weft_status weft_facts_compare(const char *facts, const weft_process_group *peers, const char *what, weft_error *err) {
    const char *mine = facts == NULL ? "" : facts;
    char hex[65], *own = NULL;
    size_t own_bytes = 0;
    void *first = NULL;
    int64_t bytes = (int64_t)strlen(mine) + 1;
    int32_t number = 0, *numbers = NULL;
    FILE *differences = NULL;
    weft_status status = WEFT_OK;
    if (weft_process_group_is_single(peers)) return WEFT_OK;
    numbers = weft_alloc(peers->world, sizeof *numbers);
    status = weft_share_array(peers, &first, &bytes, mine, 1, 0, err);
    if (status == WEFT_OK) {
        differences = open_memstream(&own, &own_bytes);
        if (differences != NULL) list_differences_of(differences, first, mine);
        if (differences == NULL || fclose(differences) != 0)
            status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the differences between ranks");
        if (own_bytes > 0 && status == WEFT_OK) status = weft_hash_text(hex, own, own_bytes, err);
        if (own_bytes > 0 && status == WEFT_OK) number = (int32_t)(strtoul(hex + 57, NULL, 16) | 1u);
        status = weft_process_group_agree(peers, status, err);
    }
    if (status == WEFT_OK) status = peers->gather(peers->context, numbers, number, err);
    if (status == WEFT_OK) status = report_differences(own, peers, numbers, what, err);
    free(numbers);
    free(first);
    free(own);
    return status;
}

/* ---- files ----
 *
 * A file is hashed only if some rank has another file of its name and size than rank 0. */

/* A file's identity, as sent to other ranks. */
typedef struct identity {
    char name[NAME_MAX + 1];
    char on_disk[200]; /* boot id of the machine, file number, ...; "": unknown, and not the same as another rank's */
    int64_t bytes;
    bool hashed;
} identity;

/* Containers on one machine share its boot id, as they share its files. */
static weft_status identify_file(identity *out, const weft_tensor_file *file, weft_error *err) {
    const char *slash = strrchr(file->path, '/');
    FILE *boot = NULL;
    char kernel[40];
    struct stat about;
    if (fstat(file->descriptor, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", file->path, strerror(errno));
    boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    (void)snprintf(out->name, sizeof out->name, "%s", slash == NULL ? file->path : slash + 1);
    out->bytes = (int64_t)about.st_size;
    if (boot != NULL && fgets(kernel, sizeof kernel, boot) != NULL)
        (void)snprintf(out->on_disk, sizeof out->on_disk, "%s %ju %ju %jd %jd.%ld", kernel, (uintmax_t)about.st_dev,
                       (uintmax_t)about.st_ino, (intmax_t)about.st_size, (intmax_t)about.st_mtim.tv_sec,
                       about.st_mtim.tv_nsec);
    if (boot != NULL) (void)fclose(boot);
    return WEFT_OK;
}

/* NULL: no file has this name. */
static identity *find_file(identity *files, int64_t n, const char *name) {
    for (int64_t i = 0; i < n; i++)
        if (strcmp(files[i].name, name) == 0) return &files[i];
    return NULL;
}

/* Adds a fact of each open file: its size, and its SHA-256 if some rank has another file. [collective] */
static weft_status add_files(char **facts, const weft_process_group *peers, const weft_tensor_file *files, int32_t n,
                             weft_error *err) {
    identity *own = weft_alloc(n, sizeof *own), *first = NULL;
    int64_t n_first = n;
    void *shared = NULL;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) status = identify_file(&own[i], &files[i], err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_share_array(peers, &shared, &n_first, own, sizeof *own, 0, err);
    first = shared;
    for (int64_t i = 0; i < n_first && status == WEFT_OK; i++) {
        identity *mine = find_file(own, n, first[i].name);
        const bool compares = mine != NULL && mine->bytes == first[i].bytes; /* other sizes differ without a hash */
        bool same = true;
        status = weft_process_group_all_true(
            peers, &same, !compares || (mine->on_disk[0] != '\0' && strcmp(mine->on_disk, first[i].on_disk) == 0), err);
        if (compares) mine->hashed = !same;
    }
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        char hex[65] = "", value[120];
        if (own[i].hashed) status = weft_hash_file(hex, files[i].descriptor, files[i].path, err);
        (void)snprintf(value, sizeof value, "%lld bytes%s%s", (long long)own[i].bytes, own[i].hashed ? ", sha256 " : "",
                       hex);
        weft_facts_add(facts, own[i].name, value);
    }
    free(own);
    free(first);
    return status;
}

/* ---- the run ---- */

static void add_key(void *facts, const char *key, const char *value) {
    weft_facts_add(facts, key, value[0] == '\0' ? "\"\"" : value);
}

static weft_status add_run(char **facts, const weft_run *run, const weft_device_info *device, weft_error *err) {
    static const char name[] = "the program's own file";
    const int descriptor = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char hex[65], part[64], value[512];
    weft_status status = WEFT_OK;
    if (descriptor < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be opened: %s", name, strerror(errno));
    status = weft_hash_file(hex, descriptor, name, err);
    (void)close(descriptor);
    if (status != WEFT_OK) return status;
    (void)snprintf(value, sizeof value, "%s, sha256 %s", WEFT_VERSION, hex);
    weft_facts_add(facts, "weft", value);
    weft_facts_add(facts, "weft's compiler", __VERSION__);
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const weft_loaded *loaded = run->parts[i].loaded;
        if (loaded == NULL) continue;
        if (i > WEFT_PART_ADAPTER) (void)snprintf(part, sizeof part, "plugin adapter %d", i - WEFT_PART_ADAPTER + 1);
        else (void)snprintf(part, sizeof part, "plugin %s", weft_part_name(i));
        (void)snprintf(value, sizeof value, "%s %s, sha256 %s", loaded->plugin->id, loaded->plugin->version,
                       loaded->sha256);
        weft_facts_add(facts, part, value);
    }
    weft_config_each_same(run->config, add_key, facts);
    if ((device->flags & WEFT_DEVICE_SHARES_MACHINE) == 0) weft_facts_add(facts, "the device's model", device->name);
    weft_facts_add(facts, "the device's instruction set", device->isa);
    weft_facts_add(facts, "the device's backend", device->backend);
    return WEFT_OK;
}

/* Compares the facts unless a rank has failed, and frees them. */
static weft_status compare_facts(const weft_process_group *peers, char *facts, weft_status status, const char *what,
                                 weft_error *err) {
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_facts_compare(facts, peers, what, err);
    free(facts);
    return status;
}

weft_status weft_coherence_run(const weft_process_group *peers, const weft_run *run, const weft_device_info *device,
                               weft_status status, weft_error *err) {
    char *facts = NULL;
    if (weft_process_group_is_single(peers)) return status;
    if (status == WEFT_OK) status = add_run(&facts, run, device, err);
    return compare_facts(peers, facts, status, "host, plugins, configuration or device", err);
}

/* ---- model and data ---- */

weft_status weft_coherence_data(const weft_process_group *peers, const weft_declared *declared, uint64_t rows,
                                weft_status status, weft_error *err) {
    char *facts = NULL;
    char hex[65] = "", value[80];
    if (weft_process_group_is_single(peers)) return status;
    if (status == WEFT_OK) {
        (void)snprintf(value, sizeof value, "%016" PRIx64, rows);
        weft_facts_add(&facts, "the sequences of the data", value);
        status = weft_hash_text(hex, declared->config_text, declared->config_bytes, err);
        (void)snprintf(value, sizeof value, "sha256 %.64s", hex);
        weft_facts_add(&facts, "the model's config.json", value);
    }
    return compare_facts(peers, facts, status, "data or model", err);
}

weft_status weft_coherence_weights(const weft_process_group *peers, const weft_run *run, weft_status status,
                                   weft_error *err) {
    char *facts = NULL;
    weft_safetensors *files = NULL;
    if (weft_process_group_is_single(peers) || run->settings.model.start == WEFT_START_FRESH) return status;
    if (status == WEFT_OK) status = weft_safetensors_open_directory(&files, run->settings.model.path, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = add_files(&facts, peers, files->files, files->n_files, err);
    weft_safetensors_close(files);
    return compare_facts(peers, facts, status, "the model's weights", err);
}

/* ---- answers of plugins ---- */

/* Reports the lowest rank whose answer differs in the first part in which any does, on rank 0. */
weft_status weft_coherence_answers(const weft_process_group *peers, const weft_plan *plan, weft_status status,
                                   weft_error *err) {
    weft_plan_answers first = {0}, theirs = plan->answers;
    int32_t part = 0, n = 0, other = -1, *numbers = NULL; /* of each rank 1 + the part, 0: no difference */
    char here[64];
    if (weft_process_group_is_single(peers)) return status;
    status = weft_process_group_agree(peers, status, err);
    if (status != WEFT_OK) return status;
    if (peers->rank == 0) first = plan->answers;
    status = weft_process_group_broadcast(peers, &first, (int64_t)sizeof first, err);
    if (status != WEFT_OK) return status;
    numbers = weft_alloc(peers->world, sizeof *numbers);
    part = weft_answers_part(&first, &plan->answers);
    status = peers->gather(peers->context, numbers, part < WEFT_N_ANSWERS ? 1 + part : 0, err);
    for (int32_t rank = 1; rank < peers->world; rank++)
        if (numbers[rank] != 0 && (other < 0 || numbers[rank] < numbers[other])) other = rank;
    for (int32_t rank = 1; rank < peers->world && other >= 0; rank++) n += numbers[rank] == numbers[other];
    part = other < 0 ? 0 : numbers[other] - 1;
    free(numbers);
    if (status == WEFT_OK && other >= 0)
        status = peers->share(peers->context, &theirs, (int64_t)sizeof theirs, other, err);
    if (status != WEFT_OK || other < 0) return status;
    if (peers->rank != 0) { /* rank 0 reports it */
        if (err != NULL) err->code = WEFT_E_PEER;
        return WEFT_E_PEER;
    }
    (void)snprintf(here, sizeof here, "on rank %d", (int)other);
    if (n > 1) weft_words_append(here, sizeof here, " and %d more", (int)n - 1);
    status = weft_answers_report_difference(plan, part, here, &theirs, "on rank 0", &first, err);
    if (err != NULL) weft_words_append(err->text, sizeof err->text, "; nothing was trained");
    return status;
}
