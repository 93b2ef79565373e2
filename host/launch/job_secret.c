/* host/launch/job_secret.c: see job_secret.h. */
#include "launch/job_secret.h"

#include "base/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "/job-secret"
enum { LEAST = 16, MOST = 256 }; /* characters of a secret */

bool weft_job_random(unsigned char out[WEFT_HASH_BYTES]) {
    return getrandom(out, WEFT_HASH_BYTES, 0) == WEFT_HASH_BYTES;
}

weft_status weft_job_prove(unsigned char out[WEFT_HASH_BYTES], const weft_job_key *key, const char *role,
                           const weft_job_words *words, weft_error *err) {
    weft_hash hash = {0};
    weft_status status = weft_hash_start(&hash, err);
    if (status == WEFT_OK) {
        weft_hash_put(&hash, key->bytes, sizeof key->bytes);
        weft_hash_put(&hash, role, strlen(role) + 1);
        weft_hash_put(&hash, words->server, sizeof words->server);
        weft_hash_put(&hash, words->client, sizeof words->client);
        weft_hash_put(&hash, &words->rank, sizeof words->rank);
        status = weft_hash_finish(&hash, out, err);
    }
    weft_hash_free(&hash);
    return status;
}

bool weft_job_proof_equals(const unsigned char a[WEFT_HASH_BYTES], const unsigned char b[WEFT_HASH_BYTES]) {
    unsigned char differ = 0;
    for (int i = 0; i < WEFT_HASH_BYTES; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

static weft_status make_key(weft_job_key *out, const char *secret, const char *source, weft_error *err) {
    const size_t n = strlen(secret);
    weft_hash hash = {0};
    weft_status status = WEFT_OK;
    if (n < LEAST || n > MOST)
        return weft_error_set(err, WEFT_E_USER, "%s holds %zu characters: a secret of a job has %d to %d", source, n,
                              LEAST, MOST);
    status = weft_hash_start(&hash, err);
    weft_hash_put(&hash, secret, n);
    if (status == WEFT_OK) status = weft_hash_finish(&hash, out->bytes, err);
    weft_hash_free(&hash);
    return status;
}

/* ---- the file ---- */

static weft_status file_fails(const char *path, const char *what, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM,
                          "%s, by which ranks recognize one another, %s: %s. Fix: set " WEFT_JOB_SECRET
                          " to the same %d characters or more for all ranks",
                          path, what, strerror(errno), LEAST);
}

/* Creates the file atomically: ranks of several machines may create it at once, and the first one wins. */
static bool create_file(const char *path) {
    unsigned char random[WEFT_HASH_BYTES];
    char text[65], hidden[PATH_MAX + 32];
    int file = -1;
    bool made = false;
    if (!weft_job_random(random)) return false;
    weft_hash_hex(text, random);
    (void)snprintf(hidden, sizeof hidden, "%s.%d.%.8s.tmp", path, (int)getpid(), text);
    if (!weft_job_random(random)) return false; /* the first bytes are part of a file name */
    weft_hash_hex(text, random);
    file = open(hidden, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return false;
    made = write(file, text, 64) == 64 && fsync(file) == 0;
    made = close(file) == 0 && made && (link(hidden, path) == 0 || errno == EEXIST);
    (void)unlink(hidden);
    return made;
}

static weft_status read_file(char text[MOST + 2], int file, const char *path, weft_error *err) {
    struct stat info;
    ssize_t n = 0;
    if (fstat(file, &info) != 0) return file_fails(path, "cannot be read", err);
    if (info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%s can be read or changed by others than its user. Fix: remove it, or chmod 600", path);
    n = read(file, text, MOST + 1);
    if (n < 0) return file_fails(path, "cannot be read", err);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return WEFT_OK;
}

static weft_status read_secret(char text[MOST + 2], char path[PATH_MAX], weft_error *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const bool has_data = data != NULL && data[0] == '/';
    weft_status status = WEFT_OK;
    int file = -1;
    if (!has_data && (home == NULL || home[0] != '/'))
        return weft_error_set(err, WEFT_E_USER,
                              "ranks that meet at a port need a secret, and there is no HOME for its file. Fix: set "
                              "" WEFT_JOB_SECRET " to the same %d characters or more for all ranks",
                              LEAST);
    (void)snprintf(path, PATH_MAX, "%s%s/weft" NAME, has_data ? data : home, has_data ? "" : "/.local/share");
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) {
        path[strlen(path) - strlen(NAME)] = '\0';
        status = weft_tree_make(path, err);
        path[strlen(path)] = NAME[0];
        if (status != WEFT_OK) return status;
        if (!create_file(path)) return file_fails(path, "cannot be created", err);
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0) return file_fails(path, "cannot be opened", err);
    status = read_file(text, file, path, err);
    (void)close(file);
    return status;
}

weft_status weft_job_key_read(weft_job_key *out, weft_error *err) {
    const char *given = getenv(WEFT_JOB_SECRET);
    char text[MOST + 2], path[PATH_MAX];
    weft_status status = WEFT_OK;
    if (given != NULL) return make_key(out, given, WEFT_JOB_SECRET, err);
    status = read_secret(text, path, err);
    return status == WEFT_OK ? make_key(out, text, path, err) : status;
}
