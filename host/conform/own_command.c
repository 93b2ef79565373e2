/* host/conform/own_command.c: see own_command.h. */
#include "conform/own_command.h"

#include "conform/rule.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 40, MOST_SAID = 1700 };

/* The last words of a command's output. */
static void read_end(char *out, size_t size, const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n = 0;
    out[0] = '\0';
    if (file == NULL) return;
    if (fseek(file, -(long)size + 1, SEEK_END) != 0) rewind(file);
    n = fread(out, 1, size - 1, file);
    out[n] = '\0';
    while (n > 0 && out[n - 1] == '\n') out[--n] = '\0';
    (void)fclose(file);
}

static void become(const char *const *words) {
    const int answer = open("answer", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)dup2(answer, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("WEFT_CODE_FILE", "code", 1);
    (void)setenv("WEFT_RANK_CODES", "code.ranks", 1);
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)words);
    _exit(127);
}

/* Of ranks that have failed one says that it is the user's fault, and none that it is another's: those that were left
 * alone by it say that they were. */
static bool ranks_say_so(void) {
    char codes[512], *at = codes;
    bool any = false;
    read_end(codes, sizeof codes, "code.ranks");
    while (*at != '\0') {
        const long code = strtol(at, &at, 10);
        if (code != WEFT_OK && code != WEFT_E_USER && code != WEFT_E_PEER) return false;
        any = any || code == WEFT_E_USER;
        at += strspn(at, "\n");
    }
    return any;
}

/* A file, a key or a number of ranks that the plugin does not take is no mistake of it; where it has run once with the
 * same, it is. */
static bool is_users_fault(bool has_run) {
    char code[16];
    read_end(code, sizeof code, "code");
    return !has_run && (strtol(code, NULL, 10) == WEFT_E_USER || ranks_say_so());
}

/* What ranks warned of is no reason. */
static void drop_warnings(char *said) {
    char *from = said, *to = said;
    while (*from != '\0') {
        const size_t n = strcspn(from, "\n"), whole = n + (from[n] == '\n');
        const char *warning = strstr(from, "weft: warning: ");
        const bool is_dropped = warning != NULL && warning < from + n;
        if (!is_dropped) memmove(to, from, whole);
        to += is_dropped ? 0 : whole;
        from += whole;
    }
    *to = '\0';
    while (to > said && to[-1] == '\n') *--to = '\0';
}

/* What says why: of ranks the first one's line, before those of who was left alone, else the last of all. */
static void keep_reason(char *said) {
    const bool is_of_ranks = ranks_say_so();
    char *last = strrchr(said, '\n');
    if (is_of_ranks) said[strcspn(said, "\n")] = '\0';
    else if (last != NULL) memmove(said, last + 1, strlen(last + 1) + 1);
}

weft_status weft_own_command(const weft_subject *subject, const char *const *words, bool chosen, weft_error *err) {
    static bool has_run; /* the plugin, in this process, which tries one rule */
    const weft_subject_options *options = subject->options;
    char plugin[WEFT_PATH_BYTES + 32]; /* "optimizer.plugin=FILE" */
    const char *all[MOST_WORDS] = {"weft"};
    char said[MOST_SAID];
    int n = 1, status = 0;
    pid_t child;
    while (*words != NULL && n < MOST_WORDS - 3) all[n++] = *words++;
    (void)snprintf(plugin, sizeof plugin, "%s.plugin=%s", subject->loaded->plugin->kind, options->file);
    if (chosen) all[n++] = plugin;
    for (size_t i = 0; chosen && i < options->n_overrides && n < MOST_WORDS - 1; i++) all[n++] = options->overrides[i];
    (void)unlink("code");
    (void)unlink("code.ranks");
    child = fork();
    if (child == 0) become(all);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return weft_error_set(err, WEFT_E_SYSTEM, "weft cannot be started");
    has_run = has_run || (chosen && status == 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return WEFT_OK;
    read_end(said, sizeof said, "log");
    if (said[0] == '\0') read_end(said, sizeof said, "answer"); /* a proof that fails is no error of the program's */
    if (WIFEXITED(status) && is_users_fault(has_run)) {
        drop_warnings(said);
        keep_reason(said);
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "%s", said);
    }
    return WEFT_BROKEN(err, "weft %s %s ends with status %d: %s", all[1], all[2],
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said);
}

weft_status weft_own_ini(char out[WEFT_PATH_BYTES], const weft_subject *subject, weft_error *err) {
    return weft_path_join(out, subject->options->directory, "run.ini", err);
}

bool weft_same_files(const char *a, const char *b) {
    FILE *one = fopen(a, "rb"), *two = fopen(b, "rb");
    int c = 0, d = 0;
    while (one != NULL && two != NULL && c == d && c != EOF) {
        c = fgetc(one);
        d = fgetc(two);
    }
    if (one != NULL) (void)fclose(one);
    if (two != NULL) (void)fclose(two);
    return c == EOF && d == EOF;
}

double weft_own_number(const char *key) {
    double value = NAN;
    json_t *object = json_load_file("answer", 0, NULL);
    if (json_is_number(json_object_get(object, key))) value = json_number_value(json_object_get(object, key));
    json_decref(object);
    return value;
}
