/* tests/fit/test_machine.c: memory of a machine, read from files in the kernel's format. */
#include "base/machine.h"
#include "scratch.h"
#include "suite.h"

#include <sys/stat.h>

enum { KIB = 1024 };
#define MIB ((int64_t)1 << 20)

/* Writes a file and its directories below a root directory that replaces /. */
static void put(const char *path, const char *text) {
    char whole[400];
    (void)snprintf(whole, sizeof whole, "%s%s", scratch, path);
    for (char *at = whole + strlen(scratch) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    write_text(whole, text);
}

static weft_machine_memory ask(void) {
    weft_machine_memory out;
    weft_machine_memory_read(&out, scratch);
    return out;
}

static void put_machine(void) {
    put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          100 kB\nMemAvailable:    6291456 kB\n");
}

TEST(a_machine_has_what_is_in_it) {
    weft_machine_memory memory;
    put_machine();
    memory = ask();
    ck_assert_int_eq(memory.total, (int64_t)8388608 * KIB);
    ck_assert_int_eq(memory.free, (int64_t)6291456 * KIB);
    ck_assert(!memory.limited);
}

TEST(a_machine_that_says_nothing_is_unknown) {
    ck_assert_int_eq(ask().total, 0);
}

TEST(groups_hold_to_the_least_of_all_above) {
    weft_machine_memory memory;
    put_machine();
    put("/proc/self/cgroup", "0::/batch/job/step\n");
    put("/sys/fs/cgroup/batch/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/batch/job/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/batch/job/memory.current", "314572800\n");
    put("/sys/fs/cgroup/batch/job/memory.stat", "anon 104857600\ninactive_file 209715200\nactive_file 0\n");
    put("/sys/fs/cgroup/batch/memory.max", "4294967296\n");
    memory = ask();
    ck_assert_int_eq(memory.total, 1024 * MIB);
    ck_assert_int_eq(memory.free, (1024 - 300 + 200) * MIB);
    ck_assert(memory.limited);
}

TEST(the_top_stands_for_a_group_that_is_not_to_be_seen) {
    put_machine();
    put("/proc/self/cgroup", "0::/docker/0123456789ab\n");
    put("/sys/fs/cgroup/memory.max", "2147483648\n");
    ck_assert_int_eq(ask().total, 2048 * MIB);
    ck_assert(ask().limited);
}

TEST(the_older_hierarchy_counts_too) {
    put_machine();
    put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/batch\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/memory/batch/memory.usage_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/memory/batch/memory.stat", "inactive_file 1\ntotal_inactive_file 134217728\n");
    ck_assert_int_eq(ask().total, 512 * MIB);
    ck_assert_int_eq(ask().free, 384 * MIB);
}

TEST(a_limit_above_what_the_machine_has_is_none) {
    put_machine();
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "99999999999999\n");
    ck_assert_int_eq(ask().total, (int64_t)8388608 * KIB);
    ck_assert(!ask().limited);
}

int main(void) {
    TCase *tests = tcase_create("machine");
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    return run_tests(tests);
}
