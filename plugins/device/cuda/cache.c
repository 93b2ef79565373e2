/* cache.c: see modules.h. A file ends with the hash of its contents, because a killed run or a full disk can leave a
 * partial file. */
#include "modules.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH = 64 }; /* hexadecimal digits */
#define MOST ((off_t)64 << 20)

bool cuda_cache_hash(char out[65], const void *bytes, size_t size) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (EVP_Digest(bytes, size, digest, &n, EVP_sha256(), NULL) != 1 || n != HASH / 2) return false;
    for (unsigned int i = 0; i < n; i++) (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return true;
}

/* Creates each missing directory of the path, with access for this user only. */
bool cuda_cache_make(char *path) {
    struct stat there;
    for (char *at = path + 1; *at != 0; at++) {
        if (*at != '/') continue;
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    if (mkdir(path, 0700) == 0) return true;
    if (errno != EEXIST) return false;
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode)) return true;
    errno = ENOTDIR;
    return false;
}

bool cuda_cache_find(char *out, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache != NULL && cache[0] == '/') n = snprintf(out, size, "%s/weft/cuda", cache);
    else if (home != NULL && home[0] == '/') n = snprintf(out, size, "%s/.cache/weft/cuda", home);
    if (n > 0 && (size_t)n < size && cuda_cache_make(out)) return true;
    out[0] = 0;
    return false;
}

static bool path_of(char *out, size_t size, const char *directory, const char *hash, const char *end) {
    return snprintf(out, size, "%s/%s%s", directory, hash, end) < (int)size;
}

/* Reads the complete file. *size excludes the trailing hash. */
static char *read_whole(int file, size_t *size) {
    struct stat now;
    char *bytes = NULL;
    size_t done = 0, all = 0;
    if (fstat(file, &now) != 0 || now.st_size <= HASH || now.st_size > MOST) return NULL;
    all = (size_t)now.st_size;
    bytes = malloc(all);
    while (bytes != NULL && done < all) {
        const ssize_t n = read(file, bytes + done, all - done);
        if (n <= 0) {
            free(bytes);
            return NULL;
        }
        done += (size_t)n;
    }
    *size = all - HASH;
    return bytes;
}

void *cuda_cache_read(const char *directory, const char *hash, size_t *size) {
    char path[4200], found[65] = "";
    char *bytes = NULL;
    int file = -1;
    if (!path_of(path, sizeof path, directory, hash, ".bin")) return NULL;
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    bytes = read_whole(file, size);
    (void)close(file);
    if (bytes != NULL && cuda_cache_hash(found, bytes, *size) && memcmp(found, bytes + *size, HASH) == 0) return bytes;
    free(bytes);
    return NULL;
}

static bool write_all(int file, const char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(file, bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

bool cuda_cache_write(const char *directory, const char *hash, const void *bytes, size_t size) {
    char path[4200], beside[4200], end[32], of[65] = "";
    bool done = false;
    int file = -1;
    (void)snprintf(end, sizeof end, ".%d.new", (int)getpid()); /* several ranks of a machine may write it */
    if (!cuda_cache_hash(of, bytes, size) || !path_of(path, sizeof path, directory, hash, ".bin") ||
        !path_of(beside, sizeof beside, directory, hash, end))
        return false;
    file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    done = write_all(file, bytes, size) && write_all(file, of, HASH);
    done = close(file) == 0 && done;
    done = done && rename(beside, path) == 0;
    if (!done) (void)unlink(beside);
    return done;
}
