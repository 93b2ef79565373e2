/* host/tools/check/compiled_body.c: see compiled_body.h. */
#include "tools/check/compiled_body.h"

#include "base/words.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SOURCE  "body.c"
#define LIBRARY "./body.so"
#define LOG     "body.log"

enum { NOT_FOUND = 127 }; /* an exit status: there is no such program */

/* ---- the source ---- */

static const char declarations[] =
    "#include <math.h>\n#include <stdint.h>\n"
    "typedef struct weft_range {\n    uint32_t struct_size, flags;\n    int64_t offset, length;\n"
    "    float lr_scale, decay;\n} weft_range;\n"
    "typedef struct weft_call {\n    uint32_t struct_size, flags;\n    float *weight;\n    const float *gradient;\n"
    "    float *states[4];\n    const void *hp;\n    const weft_range *range;\n    int64_t begin, end;\n"
    "    float coefficient;\n    int32_t reserved;\n} weft_call;\n"
    "static inline __attribute__((unused)) float weft_round_bf16(float x) {\n"
    "    union { float number; uint32_t bits; } u = {x};\n"
    "    u.bits = (u.bits + 0x7FFFu + ((u.bits >> 16) & 1u)) & 0xFFFF0000u;\n    return u.number;\n}\n";

static weft_status write_source(const weft_elementwise *update, weft_error *err) {
    FILE *to = fopen(SOURCE, "we");
    if (to == NULL) return weft_error_set(err, WEFT_E_SYSTEM, SOURCE " cannot be written: %s", strerror(errno));
    (void)fprintf(to, "%stypedef struct %s {\n%s\n} weft_hp;\n", declarations, update->hp_name, update->hp_fields);
    (void)fprintf(to, "const int64_t weft_hp_bytes = (int64_t)sizeof(weft_hp);\n"
                      "void weft_body(const weft_call *call) {\n"
                      "    const weft_hp *const hp = (const weft_hp *)call->hp;\n"
                      "    const weft_range *const range = call->range;\n    (void)hp, (void)range;\n"
                      "    for (int64_t weft_i = call->begin; weft_i < call->end; weft_i++) {\n"
                      "        float w = call->weight[weft_i];\n"
                      "        const float g = call->gradient[weft_i] * call->coefficient;\n");
    for (int64_t s = 0; s < WEFT_MAX_STATES; s++) {
        if (s < update->n_states) (void)fprintf(to, "        float s%d = call->states[%d][weft_i];\n", (int)s, (int)s);
        else (void)fprintf(to, "        float s%d = 0.0f;\n", (int)s);
    }
    (void)fprintf(to, "#line 1 \"%s\"\n%s\n        call->weight[weft_i] = w;\n        (void)g;\n", update->name,
                  update->body);
    for (int64_t s = 0; s < WEFT_MAX_STATES; s++) {
        if (s < update->n_states) (void)fprintf(to, "        call->states[%d][weft_i] = s%d;\n", (int)s, (int)s);
        else (void)fprintf(to, "        (void)s%d;\n", (int)s);
    }
    (void)fprintf(to, "    }\n}\n");
    if (fclose(to) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, SOURCE " cannot be written: %s", strerror(errno));
}

/* ---- the compiler ---- */

/* The exit status; NOT_FOUND: there is no such compiler. */
static int run_compiler(const char *compiler) {
    const char *words[] = {compiler,
                           "-std=gnu11",
                           "-O2",
                           "-fPIC",
                           "-shared",
                           "-fno-math-errno",
                           "-ffp-contract=off",
                           "-fno-fast-math",
                           "-Werror=implicit-function-declaration",
                           "-o",
                           LIBRARY,
                           SOURCE,
                           "-lm",
                           NULL};
    posix_spawn_file_actions_t files;
    pid_t child = -1;
    int status = NOT_FOUND << 8, failed;
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, LOG, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    failed = posix_spawnp(&child, compiler, &files, NULL, (char *const *)(uintptr_t)words, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    if (failed != 0) return NOT_FOUND;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* The first error of the log. */
static void read_reason(char *out, size_t size) {
    char line[600];
    FILE *file = fopen(LOG, "re");
    (void)snprintf(out, size, "the compiler says nothing");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "error:") == NULL && strstr(line, "undefined") == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, size, "%.500s", line);
        break;
    }
    if (file != NULL) (void)fclose(file);
    weft_words_tame(out);
}

static weft_status compile(weft_error *err) {
    const char *const compilers[] = {getenv("CC"), "cc", "gcc", "clang"};
    char why[600];
    int status = NOT_FOUND;
    for (size_t i = 0; i < sizeof compilers / sizeof *compilers && status == NOT_FOUND; i++)
        if (compilers[i] != NULL && compilers[i][0] != '\0') status = run_compiler(compilers[i]);
    if (status == 0) return WEFT_OK;
    if (status == NOT_FOUND)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "no C compiler is here (CC, cc, gcc, clang), so that the text of the body cannot be "
                              "compared with its function");
    read_reason(why, sizeof why);
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "the text of its body does not compile by itself, as a device has to: %s. A body uses w, g, s0 "
        "to s3, hp, range and functions of <math.h>, and nothing of its file",
        why);
}

weft_status weft_body_compile(weft_body_fn **out, int64_t *hp_bytes, const weft_elementwise *update, weft_error *err) {
    const int64_t *bytes = NULL;
    void *library = NULL, *symbol = NULL;
    weft_status status = write_source(update, err);
    if (status == WEFT_OK) status = compile(err);
    if (status != WEFT_OK) return status;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "the text of its body does not link by itself, as a device has to: %s. A body uses nothing "
            "of its file",
            dlerror());
    symbol = dlsym(library, "weft_body");
    bytes = (const int64_t *)dlsym(library, "weft_hp_bytes");
    if (symbol == NULL || bytes == NULL) return weft_error_set(err, WEFT_E_SYSTEM, "the compiled body has no function");
    memcpy(out, &symbol, sizeof symbol);
    *hp_bytes = *bytes;
    return WEFT_OK;
}
