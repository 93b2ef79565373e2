/* host/run/data_job.c: see data_job.h. */
#include "run/data_job.h"

#include "base/alloc.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

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
