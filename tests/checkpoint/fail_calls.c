/* fail_calls: runs a command and lets system calls on certain files fail. Either all from the n-th one on fail, as on a
 * full or unreadable disk, or only the n-th, as on a network file system with a short failure. For tests.
 *
 *     fail_calls ENOSPC change out/ step-4 12 weft train run.ini
 *
 * Counts the calls that change files (or that `read`, list or examine them) with "out/" in their path, from the first
 * one with "step-4" in its path. The 12th and all later ones fail. "=12": only the 12th. 0: counts only. Each call is a
 * line of the file calls.txt: number, call, path. FAIL_RANK=1 in the environment: only the calls of MPICH's rank 1.
 * Exits with the command's status, or 77 if the system does not support it. */
#include <stdio.h>

#if !defined(__x86_64__)
int main(void) {
    (void)printf("skipped: calls are made to fail on x86-64 alone\n");
    return 77;
}
#else
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a call names its file. */
enum { BY_DESCRIPTOR, BY_PATH, AT_PATH };

typedef struct kind {
    long number;
    const char *name;
    int file, at; /* argument index */
    bool reads;
} kind;

static const kind kinds[] = {
    {SYS_write, "write", BY_DESCRIPTOR, 0, false},
    {SYS_pwrite64, "pwrite64", BY_DESCRIPTOR, 0, false},
    {SYS_writev, "writev", BY_DESCRIPTOR, 0, false},
    {SYS_fsync, "fsync", BY_DESCRIPTOR, 0, false},
    {SYS_fdatasync, "fdatasync", BY_DESCRIPTOR, 0, false},
    {SYS_fallocate, "fallocate", BY_DESCRIPTOR, 0, false},
    {SYS_ftruncate, "ftruncate", BY_DESCRIPTOR, 0, false},
    {SYS_mkdir, "mkdir", BY_PATH, 0, false},
    {SYS_rename, "rename", BY_PATH, 0, false},
    {SYS_renameat2, "renameat2", AT_PATH, 1, false},
    {SYS_openat, "openat", AT_PATH, 1, false},
    {SYS_openat, "openat", AT_PATH, 1, true},
    {SYS_open, "open", BY_PATH, 0, true},
    {SYS_access, "access", BY_PATH, 0, true},
    {SYS_faccessat, "faccessat", AT_PATH, 1, true},
    {SYS_stat, "stat", BY_PATH, 0, true},
    {SYS_lstat, "lstat", BY_PATH, 0, true},
    {SYS_newfstatat, "newfstatat", AT_PATH, 1, true},
    {SYS_readlink, "readlink", BY_PATH, 0, true},
    {SYS_getdents64, "getdents64", BY_DESCRIPTOR, 0, true},
    {SYS_read, "read", BY_DESCRIPTOR, 0, true},
    {SYS_pread64, "pread64", BY_DESCRIPTOR, 0, true},
};
enum { N_KINDS = (int)(sizeof kinds / sizeof *kinds), MOST_TASKS = 4096 };

static struct {
    int error;
    bool reads, begun, once;
    const char *part, *begin;
    const char *rank; /* NULL: all processes */
    long first, n;
    FILE *list;
    pid_t failing[MOST_TASKS]; /* threads in a call that must fail */
    int n_failing;
} self;

static void path_of(char *out, size_t size, pid_t task, const kind *call, const uint64_t *args) {
    char link[64];
    ssize_t n = 0;
    if (call->file == BY_DESCRIPTOR) {
        (void)snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)task, (int)args[call->at]);
        n = readlink(link, out, size - 1);
    } else {
        const struct iovec to = {out, size - 1}, from = {(void *)(uintptr_t)args[call->at], size - 1};
        n = process_vm_readv(task, &to, 1, &from, 1, 0);
        for (size_t less = size / 2; n < 0 && less > 16; less /= 2) { /* the string ends before the page does */
            const struct iovec shorter = {(void *)(uintptr_t)args[call->at], less};
            n = process_vm_readv(task, &to, 1, &shorter, 1, 0);
        }
    }
    out[n < 0 ? 0 : n] = '\0';
}

static const kind *kind_of(long number, const uint64_t *args) {
    for (int i = 0; i < N_KINDS; i++) {
        if (kinds[i].number != number || kinds[i].reads != self.reads) continue;
        return number == SYS_openat && ((args[2] & O_CREAT) == 0) != self.reads ? NULL : &kinds[i];
    }
    return NULL;
}

/* True if the process was started as the selected rank. */
static bool is_of_rank(pid_t task) {
    char path[64], text[1 << 14], entry[64];
    size_t n = 0;
    FILE *file = NULL;
    if (self.rank == NULL) return true;
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)task);
    (void)snprintf(entry, sizeof entry, "PMI_RANK=%s", self.rank);
    file = fopen(path, "re");
    n = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL) (void)fclose(file);
    text[n] = '\0';
    for (size_t at = 0; at < n; at += strlen(text + at) + 1)
        if (strcmp(text + at, entry) == 0) return true;
    return false;
}

/* True if the starting call must fail. */
static bool is_chosen(pid_t task, long number, const uint64_t *args) {
    char path[PATH_MAX];
    const kind *call = kind_of(number, args);
    if (call == NULL) return false;
    path_of(path, sizeof path, task, call, args);
    if (strstr(path, self.part) == NULL || !is_of_rank(task)) return false;
    self.begun = self.begun || strstr(path, self.begin) != NULL;
    if (!self.begun) return false;
    (void)fprintf(self.list, "%ld %s %s\n", ++self.n, call->name, path);
    return self.first > 0 && (self.once ? self.n == self.first : self.n >= self.first);
}

static void on_call(pid_t task) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, task, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && self.n_failing < MOST_TASKS &&
        is_chosen(task, (long)info.entry.nr, info.entry.args)) {
        (void)ptrace(PTRACE_POKEUSER, task, offsetof(struct user_regs_struct, orig_rax), -1L); /* skips the call */
        self.failing[self.n_failing++] = task;
    }
    for (int i = 0; info.op == PTRACE_SYSCALL_INFO_EXIT && i < self.n_failing; i++) {
        if (self.failing[i] != task) continue;
        (void)ptrace(PTRACE_POKEUSER, task, offsetof(struct user_regs_struct, rax), (long)-self.error);
        self.failing[i] = self.failing[--self.n_failing];
        return;
    }
}

/* Returns the status of the command after its end. */
static int follow(pid_t command) {
    int status = 0, ended = 0;
    for (pid_t task = 0; (task = waitpid(-1, &status, __WALL)) > 0;) {
        int told = 0;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (task == command) ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) on_call(task);
        else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP) told = WSTOPSIG(status); /* its own signal */
        (void)ptrace(PTRACE_SYSCALL, task, 0, (long)told);
    }
    return ended;
}

static int error_of(const char *name) {
    if (strcmp(name, "ENOSPC") == 0) return ENOSPC;
    if (strcmp(name, "EIO") == 0) return EIO;
    (void)fprintf(stderr, "fail_calls: no error %s\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    int status = 0;
    pid_t command = 0;
    if (argc < 7) return 2;
    self.error = error_of(argv[1]);
    self.reads = strcmp(argv[2], "read") == 0;
    self.part = argv[3];
    self.begin = argv[4];
    self.once = argv[5][0] == '=';
    self.first = strtol(argv[5] + self.once, NULL, 10);
    self.rank = getenv("FAIL_RANK");
    self.list = fopen("calls.txt", "we");
    if (self.list == NULL) return 2;
    command = fork();
    if (command == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(77);
        (void)raise(SIGSTOP);
        (void)execvp(argv[6], argv + 6);
        _exit(127);
    }
    if (command < 0 || waitpid(command, &status, 0) != command) return 2;
    if (!WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, command, 0, options) != 0) {
        (void)printf("skipped: this system lets no process trace another\n");
        return 77;
    }
    (void)ptrace(PTRACE_SYSCALL, command, 0, 0);
    status = follow(command);
    return fclose(self.list) == 0 ? status : 2;
}
#endif
