/* host/run/text.c: see text.h. */
#include "run/text.h"

#include "base/alloc.h"
#include "base/file.h"
#include "launch/heartbeat.h"
#include "launch/world.h"
#include "model/config_json.h"
#include "plugin/enter.h"
#include "program/sections.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the data's job ---- */

/* Data that the ranks of all machines exchange. A file begins with its number, which identifies it to other processes.
 */
typedef struct shared_table {
    int32_t *gathered;             /* [world] of the last exchange */
    int32_t maker;                 /* lowest rank of this machine */
    int32_t pid, its_file, number; /* of the maker; its_file: descriptor */
    int file;                      /* this rank's descriptor; -1: none */
    bool makes;
    int32_t own_number; /* random; never 0 */
} shared_table;

static weft_status file_error(weft_error *err, const char *what) {
    const int error = errno;
    return weft_error_set(err, error == ENOMEM || error == ENOSPC ? WEFT_E_MEMORY : WEFT_E_SYSTEM,
                          "memory for data that ranks of a machine share: %s: %s", what, strerror(error));
}

/* ---- the file ---- */

/* error: errno of a failed write, for a make without a message. */
typedef struct writer {
    int file, error;
} writer;

static weft_status put_bytes(void *context, const void *bytes, size_t n) {
    writer *self = context;
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = write(self->file, (const char *)bytes + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) {
            self->error = errno;
            return errno == ENOMEM || errno == ENOSPC ? WEFT_E_MEMORY : WEFT_E_SYSTEM;
        }
        done += (size_t)wrote;
    }
    return WEFT_OK;
}

/* The file, locked; its bytes begin on the second page. */
static weft_status make_file(shared_table *self, weft_error *err) {
    const long page = sysconf(_SC_PAGESIZE);
    writer to = {0, 0};
    if (getrandom(&self->own_number, sizeof self->own_number, 0) < 0) return file_error(err, "getrandom");
    self->own_number |= 1;
    self->file = memfd_create("weft-data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (self->file < 0) return file_error(err, "memfd_create");
    self->makes = true;
    to.file = self->file;
    if (put_bytes(&to, &self->own_number, sizeof self->own_number) != WEFT_OK) return file_error(err, "write");
    if (lseek(self->file, page, SEEK_SET) != page) return file_error(err, "lseek");
    return flock(self->file, LOCK_EX) == 0 ? WEFT_OK : file_error(err, "flock");
}

/* Calls make, seals the file, and unlocks it in any case. */
static weft_status fill_file(const shared_table *self, weft_share_make *make, void *context, weft_error *err) {
    writer to = {self->file, 0};
    const weft_bytes_sink sink = {&to, put_bytes};
    weft_status status = make(context, &sink, err);
    if (to.error != 0 && (status == WEFT_OK || (err != NULL && err->text[0] == '\0'))) {
        errno = to.error;
        status = file_error(err, "write");
    }
    if (status == WEFT_OK &&
        fcntl(self->file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        status = file_error(err, "F_ADD_SEALS");
    (void)flock(self->file, LOCK_UN);
    return status;
}

/* Opens the maker's file. Returns errno, 0: it is open. */
static int32_t open_file(shared_table *self) {
    char path[64];
    struct stat info;
    int32_t found = 0;
    weft_heartbeat_path(path, sizeof path, self->pid, self->its_file);
    if (stat(path, &info) != 0) return errno;
    if (!S_ISREG(info.st_mode)) return ESTALE; /* another process has this number */
    self->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (self->file < 0) return errno;
    if (pread(self->file, &found, sizeof found, 0) == (ssize_t)sizeof found && found == self->number) return 0;
    (void)close(self->file);
    self->file = -1;
    return ESTALE;
}

static weft_status map_file(weft_data_share *self, int file, const void **bytes, size_t *n, weft_error *err) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stat info;
    void *map = MAP_FAILED;
    if (fstat(file, &info) != 0) return file_error(err, "fstat");
    if ((size_t)info.st_size <= page) return weft_error_set(err, WEFT_E_PLUGIN, "it shares no bytes");
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return file_error(err, "mmap");
    self->map = map;
    self->bytes = (size_t)info.st_size;
    *bytes = (const char *)map + page;
    *n = self->bytes - page;
    return WEFT_OK;
}

/* ---- the ranks ---- */

/* Succeeds if every rank is in make_share, or this is a single rank. Otherwise all fail with the lowest
 * failed rank's error. */
static weft_status meet(weft_data_share *self, bool is_making, weft_status status, weft_error *err) {
    const weft_process_group *peers = self->peers;
    weft_error own = WEFT_ERROR_INIT;
    weft_status failed = WEFT_OK;
    int32_t n = 0;
    if (weft_process_group_is_single(peers)) return status;
    failed = peers->gather(peers->context, peers->codes, is_making, &own);
    if (failed != WEFT_OK) {
        self->has_ended = true;
        if (status != WEFT_OK) return status;
        if (err != NULL) *err = own;
        return failed;
    }
    for (int32_t rank = 0; rank < peers->world; rank++) n += peers->codes[rank];
    if (n == peers->world) return WEFT_OK;
    self->has_ended = true;
    if (n == 0) return status;
    status = weft_process_group_agree(peers, status, err);
    if (status != WEFT_OK) return status;
    return weft_error_set(err, WEFT_E_PLUGIN, "%d of %d ranks call share in create. Allowed: all ranks, or no rank",
                          (int)n, (int)peers->world);
}

static weft_status gather(const weft_data_share *self, int32_t *out, int32_t mine, weft_error *err) {
    if (!weft_process_group_is_single(self->peers)) return self->peers->gather(self->peers->context, out, mine, err);
    *out = mine;
    return WEFT_OK;
}

/* Opens the file of each machine's maker. Afterwards each rank has a file that it makes or waits for. */
static weft_status open_files(weft_data_share *self, shared_table *ranks, weft_error *err) {
    const bool single = weft_process_group_is_single(self->peers);
    const int32_t rank = single ? 0 : self->peers->rank, world = single ? 1 : self->peers->world;
    int32_t error = 0, *const of_maker[] = {&ranks->pid, &ranks->its_file, &ranks->number};
    weft_status status = gather(self, ranks->gathered, self->node, err);
    if (status != WEFT_OK) return status;
    while (ranks->gathered[ranks->maker] != self->node) ranks->maker++;
    if (ranks->maker == rank) status = make_file(ranks, err);
    status = weft_process_group_agree(self->peers, status, err);
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        const int32_t mine[] = {(int32_t)getpid(), ranks->file, ranks->own_number};
        status = gather(self, ranks->gathered, mine[i], err);
        *of_maker[i] = ranks->gathered[ranks->maker];
    }
    if (status == WEFT_OK && !ranks->makes) error = open_file(ranks);
    if (status == WEFT_OK) status = gather(self, ranks->gathered, error, err);
    if (status != WEFT_OK) return status;
    for (int32_t r = 0; r < world && rank == 0; r++)
        if (ranks->gathered[r] != 0)
            weft_log(self->host, WEFT_LOG_WARN,
                     "rank %d cannot map the data of another rank of its machine (%s): it makes its own copy, which "
                     "needs that much more memory",
                     (int)r, strerror(ranks->gathered[r]));
    self->is_apart = error != 0;
    return weft_process_group_agree(self->peers, error != 0 ? make_file(ranks, err) : WEFT_OK, err);
}

weft_status weft_data_share_end(weft_data_share *self, weft_status status, weft_error *err) {
    return self->has_ended ? status : meet(self, false, status, err);
}

void weft_data_share_close(weft_data_share *self) {
    if (self->map != NULL) (void)munmap((void *)(uintptr_t)self->map, self->bytes);
    self->map = NULL;
}

const weft_tokenizer_chat *weft_text_chat(const weft_text *text) {
    const weft_tokenizer_chat *table = weft_text_extension(text, WEFT_TOKENIZER_CHAT);
    return table == NULL || !WEFT_WHOLE(table, weft_tokenizer_chat) ? NULL : table;
}

const weft_tokenizer_special *weft_text_special(const weft_text *text) {
    const weft_tokenizer_special *table = weft_text_extension(text, WEFT_TOKENIZER_SPECIAL);
    return table == NULL || !WEFT_WHOLE(table, weft_tokenizer_special) ? NULL : table;
}

static weft_status no_chat(weft_error *err) {
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "this run's tokenizer plugin renders no conversations (it has no "
                          "extension " WEFT_TOKENIZER_CHAT ")");
}

weft_status weft_text_encode_chat(const weft_text *text, const weft_chat_sink *sink, const weft_chat *chat,
                                  weft_error *err) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    weft_call_record before;
    weft_status status, changed;
    uint64_t fp;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(text->plugin, "chat encode");
    fp = weft_process_fp();
    status = table->encode(text->tokenizer, sink, chat, err);
    changed = weft_process_restore_fp(fp, "its chat encode ran", status == WEFT_OK ? err : NULL);
    return weft_plugin_leave(before, status == WEFT_OK ? changed : status, err);
}

/* A sink between a tokenizer and the plugin that gets the ids. */
typedef struct checked {
    const weft_ids_sink *to;
    int32_t n_ids, wrong; /* wrong: the first id that is none of the tokenizer's own */
    bool has_wrong;
} checked;

static weft_status put_checked(void *context, const int32_t *ids, size_t n) {
    checked *self = context;
    for (size_t i = 0; i < n && !self->has_wrong; i++) {
        self->has_wrong = ids[i] < 0 || ids[i] >= self->n_ids;
        self->wrong = ids[i];
    }
    return self->has_wrong ? WEFT_E_PLUGIN : self->to->put(self->to->context, ids, n);
}

static weft_text *text_of(const weft_data_job *job) {
    return ((const weft_data_source *)job->context)->text;
}

/* The tokenizer's mistakes are reported as its own, not as the caller's. */
static weft_status encode_with(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                               uint32_t flags, weft_error *err) {
    const weft_text *with = text_of(job);
    checked between = {.to = sink, .n_ids = with->info.vocab_size};
    const weft_ids_sink checks = {&between, put_checked};
    const weft_call_record before = weft_plugin_enter(with->plugin, "encode");
    const uint64_t fp = weft_process_fp();
    weft_status status = with->plugin->encode(with->tokenizer, &checks, text, bytes, flags, err);
    const weft_status changed = weft_process_restore_fp(fp, "its encode ran", status == WEFT_OK ? err : NULL);
    if (between.has_wrong)
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "returns the id %d in its encode, but its info declares the ids 0 to %d",
                                (int)between.wrong, (int)between.n_ids - 1);
    return weft_plugin_leave(before, status == WEFT_OK ? changed : status, err);
}

static weft_status encode_document(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                                   weft_error *err) {
    return encode_with(job, sink, text, bytes, text_of(job)->document_flags, err);
}

static weft_status decode(const weft_data_job *job, const weft_text_sink *sink, const int32_t *ids, size_t n,
                          uint32_t flags, weft_error *err) {
    const weft_text *with = text_of(job);
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, with->plugin, decode, err, with->tokenizer, sink, ids, n, flags);
    return status;
}

/* The saved model gets the named template that its data use. Several threads may call this. */
static void keep_template(weft_text *text, const char *named) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    __atomic_store_n(&text->chats, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; named != NULL && table != NULL && table->named(i) != NULL; i++) {
        if (strcmp(table->named(i), named) != 0) continue;
        __atomic_store_n(&text->chat_named, table->named(i), __ATOMIC_RELAXED);
        if (table->source != NULL) __atomic_store_n(&text->chat_source, table->source(i), __ATOMIC_RELAXED);
    }
}

static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *conversation,
                        weft_error *err) {
    const weft_status status = weft_text_encode_chat(text_of(job), sink, conversation, err);
    if (status == WEFT_OK) keep_template(text_of(job), conversation->named);
    return status;
}

static weft_status check_chat(const weft_data_job *job, const char *named, weft_error *err) {
    const weft_text *with = text_of(job);
    const weft_tokenizer_chat *table = weft_text_chat(with);
    weft_call_record before;
    if (table == NULL) return no_chat(err);
    before = weft_plugin_enter(with->plugin, "chat check");
    return weft_plugin_leave(before, table->check(with->tokenizer, named, err), err);
}

static int32_t special_id(const weft_data_job *job, const char *name, size_t bytes) {
    const weft_text *with = text_of(job);
    const weft_tokenizer_special *table = weft_text_special(with);
    return table == NULL ? -1 : table->id(with->tokenizer, name, bytes);
}

/* ---- shared memory ---- */

/* What the data have done to the text: 0: nothing, 1: they have conversations, 2 + i: in the named template i. */
static int32_t chats_of(const weft_text *text) {
    const weft_tokenizer_chat *table = weft_text_chat(text);
    if (__atomic_load_n(&text->chats, __ATOMIC_RELAXED) == 0) return 0;
    for (uint32_t i = 0; table != NULL && text->chat_named != NULL && table->named(i) != NULL; i++)
        if (strcmp(table->named(i), text->chat_named) == 0) return 2 + (int32_t)i;
    return 1;
}

/* Creates or maps the bytes. [collective: ranks that do not call this call weft_data_share_end] */
static weft_status share(const weft_data_job *job, weft_share_make *make, void *context, const void **bytes, size_t *n,
                         weft_error *err) {
    const weft_data_source *source = job->context;
    weft_data_share *self = source->share;
    const size_t world = weft_process_group_is_single(self->peers) ? 1 : (size_t)self->peers->world;
    shared_table ranks = {.file = -1};
    int32_t chats = 0;
    weft_status status = WEFT_OK;
    if (self->is_called) return weft_error_set(err, WEFT_E_PLUGIN, "it calls share more than once in its create");
    self->is_called = true;
    status = meet(self, true, WEFT_OK, err);
    if (status != WEFT_OK) return status;
    ranks.gathered = weft_alloc(world, sizeof *ranks.gathered);
    status = open_files(self, &ranks, err);
    if (status == WEFT_OK) {
        if (ranks.makes) status = fill_file(&ranks, make, context, err);
        else { /* wait for the maker's lock */ weft_heartbeat_wait();
            while (flock(ranks.file, LOCK_SH) != 0 && errno == EINTR) continue;
            weft_heartbeat_go();
        }
        status = weft_process_group_agree(self->peers, status, err);
        if (status == WEFT_OK) status = gather(self, ranks.gathered, chats_of(source->text), err);
        if (status == WEFT_OK) status = map_file(self, ranks.file, bytes, n, err);
    }
    chats = status == WEFT_OK ? ranks.gathered[ranks.maker] : 0;
    if (chats > 0)
        keep_template(source->text, chats == 1 ? NULL : weft_text_chat(source->text)->named((uint32_t)chats - 2));
    if (ranks.file >= 0) (void)close(ranks.file);
    free(ranks.gathered);
    return status;
}

void weft_data_job_fill(weft_data_job *job, weft_data_source *source, uint64_t seed, const weft_model_info *model) {
    *job = (weft_data_job){.struct_size = (uint32_t)sizeof *job,
                           .seed = seed,
                           .vocab_size = model->vocab_size,
                           .max_context = model->max_context,
                           .encode = encode_document,
                           .context = source,
                           .encode_with = encode_with,
                           .decode = decode,
                           .chat = chat,
                           .check_chat = check_chat,
                           .special_id = special_id,
                           .tokenizer = &source->text->info,
                           .share = source->share != NULL ? share : NULL};
}

/* ---- files of a saved model, and the tokens that end a text ---- */

enum { MOST_BYTES = 1 << 30 };

/* Gets a file of a tokenizer with added tokens, if it differs from the directory's. */
static weft_status take_changed(weft_text_file *file, const weft_text *text, uint32_t i, weft_error *err) {
    int32_t changed = 0;
    weft_bytes bytes = {0};
    const weft_text_sink sink = {&bytes, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, text->added, file, err, text->tokenizer, i, &sink, &changed);
    if (status == WEFT_OK && weft_bytes_put(&bytes, "", 1) != WEFT_OK)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer's file %s", file->name);
    if (changed == 0 || status != WEFT_OK) weft_bytes_free(&bytes);
    file->text = bytes.data;
    file->bytes = bytes.n > 0 ? bytes.n - 1 : 0;
    return status;
}

static bool is_additional(const char *name) {
    const size_t n = sizeof WEFT_ADDITIONAL_TEMPLATES - 1;
    return strncmp(name, WEFT_ADDITIONAL_TEMPLATES, n) == 0 && name[n] == '/';
}

/* A name must have no folder, except for a template in additional_chat_templates. */
static weft_status add_name(weft_text_files *self, const char *name, weft_error *err) {
    const char *at = is_additional(name) ? name + sizeof WEFT_ADDITIONAL_TEMPLATES : name;
    if (at[0] == '\0' || strchr(at, '/') != NULL || (at != name && at[0] == '.'))
        return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name", name);
    self->files = weft_realloc(self->files, self->n + 1, sizeof *self->files);
    self->files[self->n++] = (weft_text_file){.name = weft_strdup(name)};
    return WEFT_OK;
}

/* Replaces the templates of the files by the one that the model was trained with. */
static weft_status take_template(weft_text_files *self, const char *source, weft_error *err) {
    const char *name = "chat_template.jinja";
    weft_status status = WEFT_OK;
    int32_t n = 0;
    for (int32_t i = 0; i < self->n; i++) { /* transformers would select an additional template before the model's */
        weft_text_file *file = &self->files[i];
        if (!is_additional(file->name) && strcmp(file->name, name) != 0) self->files[n++] = *file;
        else {
            free(file->name);
            free(file->text);
        }
    }
    self->n = n;
    status = add_name(self, name, err);
    if (status != WEFT_OK) return status;
    self->files[n].text = weft_strdup(source);
    self->files[n].bytes = strlen(source);
    return WEFT_OK;
}

/* NULL: the tokenizer does not have the file, or it was not read. */
static const char *find_text(const weft_text_files *self, const char *name) {
    for (int32_t i = 0; i < self->n; i++)
        if (strcmp(self->files[i].name, name) == 0) return self->files[i].text;
    return NULL;
}

/* A template that writes eos_token would change its text with another token. */
static bool template_has_eos(const weft_text_files *self) {
    const char *source = find_text(self, "chat_template.jinja"), *config = NULL;
    char *dumped = NULL;
    json_t *root = NULL;
    bool has = source != NULL && strstr(source, "eos_token") != NULL;
    if (source == NULL) {
        config = find_text(self, "tokenizer_config.json");
        if (config != NULL) (void)weft_json_parse(&root, config, strlen(config), JSON_DECODE_INT_AS_REAL, "", NULL);
        dumped = json_dumps(json_object_get(root, "chat_template"), JSON_ENCODE_ANY);
        has = dumped != NULL && strstr(dumped, "eos_token") != NULL;
    }
    json_decref(root);
    free(dumped);
    return has;
}

/* Replaces eos_token in one of the tokenizer's files, if it has one and that differs. */
static weft_status change_eos(weft_text_file *file, const char *token, weft_error *err) {
    char *value = NULL;
    json_t *root = NULL, *name = json_string(token);
    weft_status status =
        file->text == NULL ? WEFT_OK
                           : weft_json_parse(&root, file->text, file->bytes, JSON_DECODE_INT_AS_REAL, file->name, err);
    const json_t *now = json_object_get(root, "eos_token");
    const char *is = json_string_value(json_is_object(now) ? json_object_get(now, "content") : now);
    const bool changes = now != NULL && (is == NULL || strcmp(is, token) != 0) && name != NULL;
    if (changes) value = json_dumps(name, JSON_ENCODE_ANY);
    if (value != NULL) {
        const weft_json_change change = {"eos_token", value};
        status = weft_config_json_change(&file->text, &file->bytes, &change, 1, err);
    }
    json_decref(name);
    json_decref(root);
    free(value);
    return status;
}

/* llama.cpp and vLLM read the tokenizer's eos_token, transformers reads generation_config.json or config.json. */
static weft_status take_end(weft_text_files *self, const weft_text *text, const char *model, weft_error *err) {
    weft_status status = weft_stop_ids_read(&self->others, model, text->info.eos, err);
    if (status != WEFT_OK) return status;
    self->end = (weft_stop_ids){.ids = {text->end}, .n = 1};
    if (template_has_eos(self)) return WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++)
        if (strcmp(self->files[i].name, "tokenizer_config.json") == 0 ||
            strcmp(self->files[i].name, "special_tokens_map.json") == 0)
            status = change_eos(&self->files[i], text->end_token, err);
    return status;
}

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, const char *model,
                                 weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; text->plugin->file != NULL && status == WEFT_OK; i++) {
        const char *name = NULL;
        WEFT_PLUGIN_QUERY(name, text->plugin, file, text->tokenizer, i);
        if (name == NULL) break;
        status = add_name(out, name, err);
        if (status == WEFT_OK && text->added != NULL) status = take_changed(&out->files[i], text, i, err);
    }
    if (status == WEFT_OK && text->chat_source != NULL) status = take_template(out, text->chat_source, err);
    for (int32_t i = 0; reads && i < out->n && status == WEFT_OK; i++)
        if (out->files[i].text == NULL) {
            status = weft_path_join(path, text->directory, out->files[i].name, err);
            if (status == WEFT_OK)
                status = weft_text_read(&out->files[i].text, &out->files[i].bytes, path, MOST_BYTES, err);
        }
    return status == WEFT_OK && reads && text->end_token != NULL ? take_end(out, text, model, err) : status;
}

void weft_text_files_clear(weft_text_files *self) {
    for (int32_t i = 0; i < self->n; i++) {
        free(self->files[i].name);
        free(self->files[i].text);
    }
    free(self->files);
    memset(self, 0, sizeof *self);
}

weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const weft_text_file *file = &self->files[i];
        char path[WEFT_PATH_BYTES];
        bool is_there = false;
        if (is_additional(file->name)) {
            status = weft_path_join(path, directory, WEFT_ADDITIONAL_TEMPLATES, err);
            if (status == WEFT_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
                status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be made: %s", path, strerror(errno));
        }
        if (status == WEFT_OK) status = weft_path_join(path, directory, file->name, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
        if (status == WEFT_OK && !is_there && file->text != NULL)
            status = weft_file_replace(path, file->text, file->bytes, err);
    }
    if (status != WEFT_OK || self->end.n == 0) return status;
    return weft_stop_ids_save(&self->end, &self->others, directory, err);
}

/* A sink; the context is the id. */
static weft_status note_chat_end(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (answers[i] >= 0 && (answers[i] & WEFT_CHAT_END) != 0) *(int32_t *)context = ids[i];
    return WEFT_OK;
}

weft_status weft_text_chat_end(int32_t *out, const weft_text *text, const char *named, weft_error *err) {
    const weft_chat_message messages[] = {
        {.struct_size = (uint32_t)sizeof *messages, .role = "user", .content = "a", .content_bytes = 1},
        {.struct_size = (uint32_t)sizeof *messages, .role = "assistant", .content = "a", .content_bytes = 1}};
    const weft_chat chat = {.struct_size = (uint32_t)sizeof chat,
                            .messages = messages,
                            .n_messages = 2,
                            .stride = (uint32_t)sizeof *messages,
                            .named = named};
    const weft_chat_sink sink = {out, note_chat_end};
    *out = -1;
    return weft_text_encode_chat(text, &sink, &chat, err);
}

/* Returns the id that [tokenizer] end selects; -1: none. */
static weft_status choose_end(int32_t *out, const weft_text *text, const weft_run *run, weft_error *err) {
    const char *wanted = run->settings.tokenizer.end;
    const weft_tokenizer_special *special = weft_text_special(text);
    weft_error why = WEFT_ERROR_INIT;
    *out = -1;
    if (strcmp(wanted, "keep") == 0) return WEFT_OK;
    if (strcmp(wanted, "auto") == 0) {
        if (text->chats == 0 || weft_text_chat_end(out, text, text->chat_named, &why) == WEFT_OK) return WEFT_OK;
        if (weft_world_get()->rank > 0) return WEFT_OK;
        weft_log(
            run->host, WEFT_LOG_WARN,
            "the token that ends an answer is unknown, so the saved model keeps the one of its files: %s. Fix: set "
            "[tokenizer] end = TOKEN",
            why.text);
        return WEFT_OK;
    }
    *out = special == NULL ? -1 : special->id(text->tokenizer, wanted, strlen(wanted));
    if (*out >= 0) return WEFT_OK;
    return weft_config_reject(run->config, "tokenizer", "end", err,
                              "is no token of the tokenizer in %s. Allowed: auto, keep, or one of its special tokens, "
                              "as <|im_end|>",
                              text->directory);
}

weft_status weft_text_end_decide(weft_text *text, const weft_run *run, weft_error *err) {
    weft_stop_ids before = {.n = 0};
    weft_bytes name = {0};
    const weft_text_sink sink = {&name, weft_bytes_put_text};
    char others[160] = "";
    weft_status status = choose_end(&text->end, text, run, err);
    if (status != WEFT_OK || text->end < 0) return status;
    WEFT_PLUGIN_CALL(status, text->plugin, decode, err, text->tokenizer, &sink, &text->end, 1,
                     WEFT_DECODE_KEEP_SPECIAL);
    if (status == WEFT_OK && weft_bytes_put(&name, "", 1) != WEFT_OK)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a token");
    text->end_token = name.data;
    if (status == WEFT_OK) status = weft_stop_ids_read(&before, run->settings.model.path, text->info.eos, err);
    if (status != WEFT_OK || (weft_stop_ids_have(&before, text->end) && text->info.eos == text->end)) return status;
    if (before.n == WEFT_MAX_STOP_IDS && !weft_stop_ids_have(&before, text->end))
        return weft_config_reject(run->config, "tokenizer", "end", err,
                                  "adds %s to the %d ids of eos_token_id, which are the most. Fix: end = keep",
                                  text->end_token, (int)before.n);
    if (weft_world_get()->rank > 0) return WEFT_OK;
    for (int32_t i = 0, n = 0; i < before.n; i++)
        if (before.ids[i] != text->end && n < (int)sizeof others - 16)
            n += snprintf(others + n, sizeof others - (size_t)n, ", %d", (int)before.ids[i]);
    weft_log(run->host, WEFT_LOG_INFO,
             "the saved model ends its text with %s: eos_token_id is %d%s. Set [tokenizer] end = keep to leave it as "
             "the model's files have it",
             text->end_token, (int)text->end, others);
    return WEFT_OK;
}

static weft_status find_file(bool *out, const char *directory, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, name, err);
    *out = false;
    if (status == WEFT_OK && directory[0] != '\0') status = weft_file_exists(out, path, err);
    return status;
}

weft_status weft_run_stop_ids(weft_stop_ids *out, const weft_run *run, const weft_text *text, weft_error *err) {
    const char *adapter = run->settings.adapter_from;
    bool has_own = false, has_config = false;
    weft_status status = find_file(&has_own, adapter, "generation_config.json", err);
    if (status == WEFT_OK) status = find_file(&has_config, adapter, "config.json", err);
    if (status != WEFT_OK) return status;
    return weft_stop_ids_read(out, has_own && !has_config ? adapter : run->settings.model.path, text->info.eos, err);
}

weft_status weft_run_use_adapter_tokenizer(weft_run *run, weft_error *err) {
    const char *from = run->settings.adapter_from;
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    bool has_tokenizer = false, has_template = false, has_config = false;
    weft_status status = WEFT_OK;
    if (from[0] == '\0' || run->settings.tokenizer.path[0] != '\0' || weft_tokens_wanted(run)) return WEFT_OK;
    status = find_file(&has_tokenizer, from, "tokenizer.json", err);
    if (status != WEFT_OK || !has_tokenizer) return status;
    status = find_file(&has_template, from, "chat_template.jinja", err);
    if (status == WEFT_OK && !has_template) status = find_file(&has_config, from, "tokenizer_config.json", err);
    if (status == WEFT_OK && has_config) status = weft_path_join(path, from, "tokenizer_config.json", err);
    if (status == WEFT_OK && has_config) status = weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, err);
    has_template = has_template || json_object_get(config, "chat_template") != NULL;
    json_decref(config);
    if (has_template) run->settings.tokenizer.path = from;
    return status;
}

const char *weft_run_adapter_template(const weft_run *run, const weft_text *text) {
    enum { MOST_TEMPLATE = 4 << 20 };
    const weft_tokenizer_chat *table = weft_text_chat(text);
    const char *found = NULL;
    char path[WEFT_PATH_BYTES], *source = NULL;
    size_t n = 0;
    if (run->settings.adapter_from[0] == '\0' || table == NULL || table->source == NULL) return NULL;
    if (weft_path_join(path, run->settings.adapter_from, "chat_template.jinja", NULL) != WEFT_OK ||
        weft_text_read(&source, &n, path, MOST_TEMPLATE, NULL) != WEFT_OK)
        return NULL;
    for (uint32_t i = 0; found == NULL && table->named(i) != NULL; i++)
        if (strcmp(table->source(i), source) == 0) found = table->named(i);
    free(source);
    return found;
}
