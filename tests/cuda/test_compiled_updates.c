/* Compiles optimizer updates by NVRTC for each architecture that the device knows. Checks that there is no FMA
 * contraction, no spilled register, and that an error is shown in the author's original text. No GPU is needed. */
#include "cuda/optimizer_kernels.h"
#include "suite.h"

#include "../../plugins/device/cuda/modules.h"

WEFT_HP(toy_hp, float lr; int32_t times; uint32_t more;)
WEFT_ELEMENTWISE(
    toy_update, toy_hp, 4, for (int32_t i = 0; i < hp->times; i++) { s3 = s3 * g + s0; } if (w > 0.0f) {
        w -= fmaxf(fminf(hp->lr, s1), fabsf(s2)) * expf(g) + sqrtf(g) * range->decay;
    } else { w = range->lr_scale / (w + 1.0f); })
WEFT_HP(wrong_hp, float lr;)
static const weft_elementwise wrong_update = {
    (uint32_t)sizeof(weft_elementwise),
    0,
    "wrong_update",
    "wrong_hp",
    wrong_hp_fields,
    "float d = g - s0; for (int i = 0; i < 3; i++) d += 1.0f; w -= hp->lr * momentum; s0 = d;",
    1,
    NULL};

static const char *const architectures[] = {"sm_80", "sm_89", "sm_90"};

static bool tells_registers; /* as counted by ptxas, in the log */
static int32_t rows = CUDA_UPDATE_FEW;

static nvrtcResult compile_as(nvrtcProgram *out, const weft_elementwise *kernel, const cuda_update_types *types,
                              const char *architecture) {
    char card[64];
    cuda_update_types all = *types;
    char *source = NULL;
    const char *options[2 + CUDA_UPDATE_OPTIONS] = {card, cuda_update_options[0], cuda_update_options[1],
                                                    "--ptxas-options=-v"};
    const int n_options = 1 + CUDA_UPDATE_OPTIONS + tells_registers;
    nvrtcResult code;
    all.rows = rows;
    source = cuda_update_source(kernel, &all);
    ck_assert_ptr_nonnull(source);
    (void)snprintf(card, sizeof card, "--gpu-architecture=%s", architecture);
    ck_assert_int_eq(nvrtcCreateProgram(out, source, CUDA_UPDATE, 0, NULL, NULL), NVRTC_SUCCESS);
    code = nvrtcCompileProgram(*out, n_options, options);
    free(source);
    return code;
}

static const cuda_update_types plain = {.weight = WEFT_F32, .states = {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F32}};
static nvrtcResult compile(nvrtcProgram *out, const weft_elementwise *kernel, const char *architecture) {
    return compile_as(out, kernel, &plain, architecture);
}

static char *log_of(nvrtcProgram program) {
    size_t size = 0;
    char *text;
    ck_assert_int_eq(nvrtcGetProgramLogSize(program, &size), NVRTC_SUCCESS);
    text = calloc(1, size + 1);
    ck_assert_int_eq(nvrtcGetProgramLog(program, text), NVRTC_SUCCESS);
    return text;
}

static void compile_for_cards_as(const weft_elementwise *kernel, const cuda_update_types *types) {
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        nvrtcProgram program = NULL;
        size_t size = 0;
        const nvrtcResult code = compile_as(&program, kernel, types, architectures[i]);
        char *log = log_of(program);
        ck_assert_msg(code == NVRTC_SUCCESS, "%s for %s: %s", kernel->name, architectures[i], log);
        ck_assert_msg(strlen(log) < 2, "%s for %s: %s", kernel->name, architectures[i], log); /* no warning either */
        ck_assert_int_eq(nvrtcGetCUBINSize(program, &size), NVRTC_SUCCESS);
        ck_assert_uint_gt(size, 1000);
        free(log);
        ck_assert_int_eq(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
    }
}

static void compile_for_cards(const weft_elementwise *kernel) {
    compile_for_cards_as(kernel, &plain);
}

TEST(every_update_compiles_for_every_card) {
    const cuda_update_types narrow = {.weight = WEFT_BF16,
                                      .states = {WEFT_DYN8X256, WEFT_UDYN8X256, WEFT_BF16, WEFT_F32}};
    const cuda_update_types copied = {.weight = WEFT_F32, .states = {WEFT_F32, WEFT_F32}, .copy = WEFT_F16};
    const cuda_update_types two = {.weight = WEFT_F32, .states = {WEFT_DYN8X256, WEFT_UDYN8X256}};
    compile_for_cards_as(&toy_update, &narrow);
    compile_for_cards_as(optimizer_kernel("adamw"), &two);
    compile_for_cards_as(optimizer_kernel("adamw"), &copied);
    compile_for_cards(optimizer_kernel("adamw"));
    compile_for_cards(optimizer_kernel("sgd"));
    compile_for_cards(&toy_update);
}

TEST(no_product_is_joined_with_a_sum) {
    const weft_elementwise *kernels[] = {optimizer_kernel("adamw"), optimizer_kernel("sgd")};
    for (size_t i = 0; i < 2; i++) {
        nvrtcProgram program = NULL;
        size_t size = 0;
        char *text;
        ck_assert_int_eq(compile(&program, kernels[i], "compute_90"), NVRTC_SUCCESS);
        ck_assert_int_eq(nvrtcGetPTXSize(program, &size), NVRTC_SUCCESS);
        text = calloc(1, size + 1);
        ck_assert_int_eq(nvrtcGetPTX(program, text), NVRTC_SUCCESS);
        ck_assert_ptr_nonnull(strstr(text, "mul.rn.f32"));
        ck_assert_ptr_null(strstr(text, "fma."));
        free(text);
        ck_assert_int_eq(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
    }
}

/* Checks in ptxas's log that the update uses no local memory, neither for spills nor for arrays. */
static void expect_no_spill(const weft_elementwise *kernel, const cuda_update_types *types, const char *card) {
    nvrtcProgram program = NULL;
    const nvrtcResult code = compile_as(&program, kernel, types, card);
    char *log = log_of(program), *used = strstr(log, "Used "), what[200];
    (void)snprintf(what, sizeof what, "%s for %s, weight %s, states %s, copy %s", kernel->name, card,
                   weft_dtype_name(types->weight), types->states[0] == 0 ? "none" : weft_dtype_name(types->states[0]),
                   types->copy == 0 ? "none" : weft_dtype_name(types->copy));
    ck_assert_msg(code == NVRTC_SUCCESS, "%s: %s", what, log);
    ck_assert_msg(used != NULL, "%s: ptxas says nothing: %s", what, log);
    printf("%s: %.*s\n", what, (int)strcspn(used, ",\n"), used);
    ck_assert_msg(strstr(log, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") != NULL, "%s: %s",
                  what, log);
    free(log);
    ck_assert_int_eq(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
}

/* All optimizers of the host, with each storage type of weights and states, with and without a copy. The quick suite
 * uses one GPU type. */
static const struct {
    const char *id, *key;
} optimizers[] = {{"adamw", NULL},
                  {"sgd", NULL},
                  {"sgd", "momentum"},
                  {"anyprecision", NULL},
                  {"anyprecision", "use_kahan_summation"}};
TESTS(no_update_spills, LENGTH(optimizers)) {
    static const int32_t weights[] = {WEFT_F32, WEFT_BF16}, states[] = {WEFT_F32, WEFT_BF16, WEFT_DYN8X256};
    const weft_elementwise *kernel = optimizer_kernel_with(optimizers[_i].id, optimizers[_i].key);
    const size_t n_cards = is_full() ? 3 : 1, n_states = kernel->n_states > 0 ? 3 : 1;
    tells_registers = true;
    rows = _i % 2 == 0 ? CUDA_UPDATE_MANY : CUDA_UPDATE_FEW;
    for (size_t c = 0; c < n_cards; c++) {
        for (size_t w = 0; w < 2; w++) {
            for (size_t s = 0; s < n_states; s++) {
                cuda_update_types types = {.weight = weights[w]};
                for (int i = 0; i < kernel->n_states; i++)
                    types.states[i] = i == 1 && states[s] == WEFT_DYN8X256 ? WEFT_UDYN8X256 : states[s];
                expect_no_spill(kernel, &types, architectures[2 - c]);
                types.copy = w == 0 ? WEFT_BF16 : WEFT_F32;
                expect_no_spill(kernel, &types, architectures[2 - c]);
            }
        }
    }
    tells_registers = false;
}

TEST(a_mistake_is_shown_as_its_author_wrote_it) {
    nvrtcProgram program = NULL;
    char *log;
    ck_assert_int_eq(compile(&program, &wrong_update, "sm_90"), NVRTC_ERROR_COMPILATION);
    log = log_of(program);
    ck_assert_msg(strstr(log, "wrong_update(3): error") != NULL, "%s", log); /* the third statement */
    ck_assert_msg(strstr(log, "momentum") != NULL, "%s", log);
    ck_assert_msg(strstr(log, "w -= hp->lr * momentum;\n") != NULL, "%s", log);
    free(log);
    ck_assert_int_eq(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
}

int main(void) {
    TCase *t = tcase_create("nvrtc");
    tcase_set_timeout(t, 300);
    return run_tests(t);
}
