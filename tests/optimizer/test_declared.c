/* The host validates an optimizer's declaration before planning. The plugin is a table in this file. */
#include "run/validate.h"
#include "suite.h"

/* A slot as in a newer SDK. */
typedef struct later_slot {
    weft_state_slot known;
    int64_t more;
} later_slot;

WEFT_HP(toy_hp, float lr;)
WEFT_ELEMENTWISE(toy_update, toy_hp, 2, w -= hp->lr * g; s0 = g; s1 = w;)

static later_slot slots[WEFT_MAX_STATES + 1];
static int64_t n_states, hp_bytes;
static uint32_t stride;
static weft_elementwise kernel;

static const weft_state_slot *states(const weft_optimizer *optimizer, int64_t *n, uint32_t *bytes) {
    *n = n_states;
    *bytes = stride;
    return &slots[0].known;
}

static int64_t hp_size(const weft_optimizer *optimizer) {
    return hp_bytes;
}

static const weft_elementwise *update(const weft_optimizer *optimizer) {
    return &kernel;
}

static const weft_optimizer_plugin table = {
    .struct_size = (uint32_t)sizeof table, .states = states, .hp_size = hp_size, .update = update};

static void setup(void) {
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth"};
    for (int i = 0; i <= WEFT_MAX_STATES; i++) {
        const later_slot slot = {{(uint32_t)sizeof slot, 0, names[i], WEFT_F32, 1, 4}, 0};
        slots[i] = slot;
    }
    n_states = 2;
    hp_bytes = sizeof(toy_hp);
    stride = sizeof(later_slot);
    kernel = toy_update;
}

TEST(slots_lie_as_far_apart_as_the_plugin_has_them) {
    weft_optimizer_facts facts;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_optimizer_validate(&facts, &table, NULL, "toy", &err), err);
    ck_assert_int_eq(facts.n_states, 2);
    ck_assert_str_eq(facts.states[0].name, "first");
    ck_assert_str_eq(facts.states[1].name, "second");
    ck_assert_int_eq(facts.hp_bytes, 4);
}

#define MISTAKE(name, ...)                                                                                             \
    static void name(void) {                                                                                           \
        __VA_ARGS__;                                                                                                   \
    }
MISTAKE(many, n_states = WEFT_MAX_STATES + 1)
MISTAKE(near, stride = sizeof(weft_state_slot) - 8)
MISTAKE(no_stride, stride = 0)
MISTAKE(short_slot, slots[1].known.struct_size = 8)
MISTAKE(unfilled_slot, slots[1].known.struct_size = 0)
MISTAKE(later, slots[1].more = 1)
MISTAKE(nameless, slots[0].known.name = NULL)
MISTAKE(masters, slots[0].known.name = "master")
MISTAKE(elsewhere, slots[0].known.name = "../x")
MISTAKE(twice, slots[1].known.name = "first")
MISTAKE(other_type, slots[1].known.dtype = WEFT_F16)
MISTAKE(other_bytes, slots[1].known.dtype = WEFT_BF16) /* of two bytes, but four are declared */
MISTAKE(unknown_flag, slots[1].known.flags = 64)
MISTAKE(other_block, slots[1].known.block = 64)
MISTAKE(large_hp, hp_bytes = WEFT_MAX_HP + 4)
MISTAKE(no_hp, hp_bytes = 0)
MISTAKE(odd_hp, hp_bytes = 6)
static void short_hp(void) {
    kernel.hp_fields = "float lr, beta[2]; int32_t more;";
    hp_bytes = 12;
}
static void wide_hp(void) {
    kernel.hp_fields = "float lr; double more;";
    hp_bytes = 16;
}
MISTAKE(fewer_in_the_update, kernel.n_states = 1)
MISTAKE(no_loop, kernel.cpu = NULL)
MISTAKE(short_update, kernel.struct_size = 16)

static const struct {
    void (*plant)(void);
    weft_status status;
    const char *says;
} mistakes[] = {
    {many, WEFT_E_PLUGIN, "declares 5 states. Allowed: at most 4"},
    {near, WEFT_E_PLUGIN, "has 2 states at a stride of 24 bytes"},
    {no_stride, WEFT_E_PLUGIN, "has 2 states at a stride of 0 bytes"},
    {short_slot, WEFT_E_PLUGIN, "its state 1 with struct_size 8. Allowed: 32"},
    {unfilled_slot, WEFT_E_PLUGIN, "its state 1 with struct_size 0"},
    {later, WEFT_E_UNSUPPORTED, "its state 1 has fields after the 32 bytes"},
    {nameless, WEFT_E_PLUGIN, "a state called '' cannot be saved"},
    {masters, WEFT_E_PLUGIN, "a state called 'master' cannot be saved"},
    {elsewhere, WEFT_E_PLUGIN, "a state called '../x' cannot be saved"},
    {twice, WEFT_E_PLUGIN, "two states called 'first'"},
    {other_type, WEFT_E_UNSUPPORTED, "its state second as fp16"},
    {other_bytes, WEFT_E_PLUGIN, "1 elements and 4 bytes. Allowed for bf16: 1 and 2"},
    {unknown_flag, WEFT_E_UNSUPPORTED, "flags 0x40 of its state second"},
    {other_block, WEFT_E_PLUGIN, "second in blocks of 64 elements"},
    {large_hp, WEFT_E_PLUGIN, "260 bytes of hp. Allowed: 4 to 256"},
    {no_hp, WEFT_E_PLUGIN, "0 bytes of hp"},
    {odd_hp, WEFT_E_PLUGIN, "6 bytes of hp"},
    {short_hp, WEFT_E_PLUGIN, "returns 12 in hp_size, but toy_hp has 4 members"},
    {wide_hp, WEFT_E_PLUGIN, "a member of 8 bytes in its hp, toy_hp"},
    {fewer_in_the_update, WEFT_E_PLUGIN, "declares 2 states, and its update toy_update has 1"},
    {no_loop, WEFT_E_PLUGIN, "no complete update"},
    {short_update, WEFT_E_PLUGIN, "no complete update"},
};

TESTS(rejects_invalid_declarations_by_name, LENGTH(mistakes)) {
    weft_optimizer_facts facts;
    weft_error err = WEFT_ERROR_INIT;
    mistakes[_i].plant();
    ck_assert_int_eq(weft_optimizer_validate(&facts, &table, NULL, "toy", &err), mistakes[_i].status);
    ck_assert_msg(strncmp(err.text, "optimizer toy", 13) == 0 && strstr(err.text, mistakes[_i].says) != NULL, "%s",
                  err.text);
}

int main(void) {
    return run_tests(test_case("declared", 0, setup, NULL));
}
