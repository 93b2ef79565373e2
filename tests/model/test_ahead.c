/* tests/model/test_ahead.c: read-ahead. Awaited ranges are in the page cache; no wait blocks forever, for any order of
 * requests and any damage to the files; and read-ahead is limited. */
#include "base/safetensors.h"
#include "scratch.h"
#include "suite.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { MB = 1 << 20, FILES = 3, PAGE = 4096 };

static weft_tensor_file files[FILES];
static char paths[FILES][4200];

/* Makes three sparse files that are not in the page cache. */
static void make_files(size_t bytes) {
    for (int i = 0; i < FILES; i++) {
        char name[32];
        int descriptor = -1;
        (void)snprintf(name, sizeof name, "file-%d", i);
        (void)snprintf(paths[i], sizeof paths[i], "%s", scratch_path(name));
        descriptor = open(paths[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
        ck_assert_int_ge(descriptor, 0);
        ck_assert_int_eq(ftruncate(descriptor, (off_t)bytes), 0);
        ck_assert_int_eq(fsync(descriptor), 0);
        ck_assert_int_eq(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
        (void)close(descriptor);
        files[i] = (weft_tensor_file){.path = paths[i], .bytes = bytes, .descriptor = -1};
    }
}

/* Returns the number of cached pages in a range of a file. */
static int64_t pages_cached(int file, int64_t begin, int64_t bytes) {
    const int descriptor = open(paths[file], O_RDONLY);
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)begin);
    unsigned char *there = malloc((size_t)(bytes / PAGE) + 1);
    int64_t n = 0;
    ck_assert(map != MAP_FAILED && there != NULL);
    ck_assert_int_eq(mincore(map, (size_t)bytes, there), 0);
    for (int64_t i = 0; i < bytes / PAGE; i++) n += there[i] & 1;
    free(there);
    (void)munmap(map, (size_t)bytes);
    (void)close(descriptor);
    return n;
}

static weft_ahead *start(int64_t lead) {
    weft_ahead *ahead = weft_ahead_start(files, FILES, lead);
    ck_assert_ptr_nonnull(ahead);
    return ahead;
}

TEST(awaited_pages_are_cached) {
    weft_ahead *ahead = NULL;
    make_files(4 * MB);
    ahead = start(MB);
    for (int i = 0; i < FILES; i++) {
        weft_ahead_wait(ahead, i, 3 * MB);
        ck_assert_int_eq(pages_cached(i, 0, 3 * MB), 3 * MB / PAGE);
    }
    weft_ahead_stop(ahead);
}

TEST(waiting_for_the_end_reads_all_before_it) {
    weft_ahead *ahead = NULL;
    make_files(4 * MB);
    ahead = start(MB);
    weft_ahead_wait(ahead, 2, 4 * MB);
    weft_ahead_wait(ahead, 0, MB);
    ck_assert_int_eq(pages_cached(0, 0, 4 * MB), 4 * MB / PAGE);
    ck_assert_int_eq(pages_cached(2, 0, 4 * MB), 4 * MB / PAGE);
    weft_ahead_stop(ahead);
}

TEST(does_not_read_far_ahead) {
    weft_ahead *ahead = NULL;
    make_files((size_t)256 * MB);
    if (pages_cached(2, 255 * MB, MB) > 0) {
        (void)printf("skipped: the file system keeps all files in memory\n");
        return;
    }
    ahead = start(MB);
    weft_ahead_wait(ahead, 0, MB);
    (void)usleep(300000);
    ck_assert_int_eq(pages_cached(0, 255 * MB, MB), 0);
    ck_assert_int_eq(pages_cached(2, 255 * MB, MB), 0);
    weft_ahead_stop(ahead);
}

TESTS(a_missing_or_short_file_does_not_block, 2) {
    weft_ahead *ahead = NULL;
    make_files(4 * MB);
    if (_i == 0) ck_assert_int_eq(unlink(paths[1]), 0);
    else ck_assert_int_eq(truncate(paths[1], MB), 0);
    ahead = start(MB);
    weft_ahead_wait(ahead, 1, 4 * MB);
    weft_ahead_wait(ahead, 2, 4 * MB);
    weft_ahead_stop(ahead);
}

TESTS(can_be_stopped_at_once_or_be_null, 2) {
    make_files(4 * MB);
    for (int i = 0; i < 100; i++) weft_ahead_stop(start(_i == 0 ? 0 : 64 * MB));
    weft_ahead_wait(NULL, 0, MB);
    weft_ahead_stop(NULL);
}

int main(void) {
    return run_tests(test_case("all", 60, scratch_make, scratch_remove));
}
