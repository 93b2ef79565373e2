/* host/report/plan_diff.c: see plan_diff.h. */
#include "report/plan_diff.h"

#include "base/units.h"
#include "base/text.h"

#include <stdlib.h>

/* ---- one configuration ---- */

static void add_number(json_t *numbers, const char *group, const char *name, int64_t value) {
    char text[128];
    (void)snprintf(text, sizeof text, "%s %s", group, name);
    (void)json_object_set_new(numbers, text, json_integer(value));
}

weft_status weft_plan_diff_facts(json_t **out, const weft_session *session, const weft_all_rank_plan *all_rank_plan,
                                 weft_error *err) {
    const weft_engine *engine = session->engine;
    const weft_plan_bytes *most = &all_rank_plan->ranks[0].bytes;
    int64_t sent[WEFT_N_TRAFFIC] = {0}, total = 0, to_nodes = 0, instructions[WEFT_INSTRUCTION_REFRESH + 1] = {0};
    json_t *facts = json_object(), *numbers = json_object(), *keys = json_object();
    json_t *rows = weft_config_array(session->run->config), *row = NULL;
    const bool is_text = rows != NULL;
    size_t i = 0;
    json_array_foreach(rows, i, row)(void)
        json_object_set(keys, json_string_value(json_object_get(row, "key")), json_object_get(row, "value"));
    (void)json_object_set_new(facts, "keys", keys);
    json_decref(rows);
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++) {
        const weft_rank_plan *plan = &all_rank_plan->ranks[rank];
        if (plan->bytes.total > most->total) most = &plan->bytes;
        for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++) sent[kind] += plan->sent[kind];
        for (int32_t kind = 0; kind <= WEFT_INSTRUCTION_REFRESH; kind++) instructions[kind] += plan->instructions[kind];
        total += plan->total_sent;
        to_nodes += plan->to_nodes;
    }
    for (int32_t category = 0; category < WEFT_N_MEMORY_CATEGORIES; category++)
        add_number(numbers, "memory", weft_memory_category_name(category), most->category[category]);
    add_number(numbers, "memory", "gaps", most->spare);
    add_number(numbers, "memory", "total", most->total);
    for (int32_t kind = WEFT_TRAFFIC_OTHER + 1; kind < WEFT_N_TRAFFIC; kind++)
        add_number(numbers, "sent", weft_traffic_name(kind), sent[kind]);
    add_number(numbers, "sent", "total", total);
    add_number(numbers, "sent", "to other nodes", to_nodes);
    for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++)
        add_number(numbers, "instructions", weft_instruction_kind_name(kind), instructions[kind]);
    add_number(numbers, "model", "trained", weft_declared_numel(engine->plan.declared, true));
    add_number(numbers, "model", "units", engine->plan.layout->n_units);
    add_number(numbers, "run", "replicas", engine->plan.train.job->spec.view.replicas);
    add_number(numbers, "run", "steps", session->steps);
    add_number(numbers, "run", "covered by the contract", engine->plan.train.coverage.covered);
    (void)json_object_set_new(facts, "numbers", numbers);
    *out = facts;
    if (is_text) return WEFT_OK;
    json_decref(facts);
    *out = NULL;
    return weft_error_set(err, WEFT_E_USER, "the configuration cannot be compared: a path in it is not UTF-8");
}

/* ---- two configurations ---- */

static void add_row(json_t *rows, const char *name, json_t *a, json_t *b) {
    if (json_equal(a, b)) return;
    (void)json_array_append_new(rows, json_pack("{s:s, s:O?, s:O?}", "name", name, "a", a, "b", b));
}

static json_t *differing(const json_t *a, const json_t *b) {
    json_t *rows = json_array(), *value = NULL;
    const char *name = NULL;
    json_object_foreach((json_t *)(uintptr_t)a, name, value) add_row(rows, name, value, json_object_get(b, name));
    json_object_foreach((json_t *)(uintptr_t)b, name, value) if (json_object_get(a, name) == NULL)
        add_row(rows, name, NULL, value);
    return rows;
}

json_t *weft_plan_diff_make(const json_t *a, const json_t *b) {
    return json_pack("{s:o, s:o}", "keys", differing(json_object_get(a, "keys"), json_object_get(b, "keys")), "numbers",
                     differing(json_object_get(a, "numbers"), json_object_get(b, "numbers")));
}

enum { COLUMN = 24 };

/* Formats a value, with thousands separators for numbers of tables. Values other than strings fit into `own`. */
static const char *show_value(char own[64], const json_t *value, bool counts) {
    if (json_is_string(value)) return json_string_value(value);
    if (value == NULL || json_is_null(value)) (void)snprintf(own, 64, "-");
    else if (json_is_boolean(value)) (void)snprintf(own, 64, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_integer(value) && counts) (void)weft_unit_count(own, json_integer_value(value));
    else (void)snprintf(own, 64, "%.10g", json_number_value(value));
    return own;
}

/* Prints a row; a path or a list that is wider than a column gets a separate line. */
static void print_row(const json_t *row, bool counts, const char *name_a, const char *name_b, FILE *to) {
    const json_t *a = json_object_get(row, "a"), *b = json_object_get(row, "b");
    char of_a[64], of_b[64];
    const char *left = show_value(of_a, a, counts), *right = show_value(of_b, b, counts);
    const char *name = json_string_value(json_object_get(row, "name"));
    if (strlen(left) > COLUMN || strlen(right) > COLUMN) {
        weft_words_print(to, "%s\n  %s  %s\n  %s  %s\n", name, name_a, left, name_b, right);
        return;
    }
    (void)fprintf(to, "%-34s %*s %*s", name, COLUMN, left, COLUMN, right);
    if (counts && json_integer_value(a) != 0)
        (void)fprintf(to, " %+9.1f %%", 100.0 * ((double)json_integer_value(b) / (double)json_integer_value(a) - 1.0));
    (void)fputc('\n', to);
}

void weft_plan_diff_print(const json_t *difference, const char *name_a, const char *name_b, FILE *to) {
    const json_t *keys = json_object_get(difference, "keys"), *numbers = json_object_get(difference, "numbers"), *row;
    size_t i = 0;
    (void)fprintf(to, "%-34s %*s %*s\n", "", COLUMN, name_a, COLUMN, name_b);
    json_array_foreach(keys, i, row) print_row(row, false, name_a, name_b, to);
    json_array_foreach(numbers, i, row) print_row(row, true, name_a, name_b, to);
    if (json_array_size(keys) + json_array_size(numbers) == 0) (void)fprintf(to, "no difference\n");
}
