/* host/report/all_rank_table.c: see all_rank_table.h. */
#include "report/all_rank_table.h"

#include "base/units.h"
#include "program/budget.h"

#include <stdlib.h>

enum { NAME = 28 };

/* ---- equal ranks ---- */

static bool ranks_plan_alike(const weft_rank_plan *a, const weft_rank_plan *b) {
    return memcmp(&a->bytes, &b->bytes, sizeof a->bytes) == 0 && a->padding == b->padding && a->kept == b->kept &&
           a->updated == b->updated && memcmp(a->sent, b->sent, sizeof a->sent) == 0 && a->to_nodes == b->to_nodes &&
           memcmp(a->instructions, b->instructions, sizeof a->instructions) == 0;
}

/* Returns true if no earlier rank equals this one. */
static bool is_first(const weft_all_rank_plan *self, int32_t rank) {
    for (int32_t r = 0; r < rank; r++)
        if (ranks_plan_alike(&self->ranks[r], &self->ranks[rank])) return false;
    return true;
}

/* Writes "0-6, 8": the ranks that equal this one; ranks that do not fit into the text are counted. */
static void name_ranks(const weft_all_rank_plan *self, char *text, int32_t rank) {
    size_t n = 0;
    int32_t left = 0;
    for (int32_t r = rank; r < self->world; r++) {
        int32_t end = r;
        if (!ranks_plan_alike(&self->ranks[r], &self->ranks[rank])) continue;
        while (end + 1 < self->world && ranks_plan_alike(&self->ranks[end + 1], &self->ranks[rank])) end++;
        if (n + 14 > NAME) left += end - r + 1;
        else if (end > r) n += (size_t)snprintf(text + n, NAME - n, "%s%d-%d", n > 0 ? "," : "", (int)r, (int)end);
        else n += (size_t)snprintf(text + n, NAME - n, "%s%d", n > 0 ? "," : "", (int)r);
        r = end;
    }
    if (left > 0) (void)snprintf(text + n, NAME + 16 - n, " +%d", (int)left);
}

/* ---- tables ---- */

/* Prints a line for each kind of rank: its ranks, and the output of `print`. */
static void print_rank_rows(const weft_all_rank_plan *self, FILE *to,
                            void (*print)(const weft_all_rank_plan *self, const weft_rank_plan *plan, FILE *to)) {
    for (int32_t rank = 0; rank < self->world; rank++) {
        char name[NAME + 16];
        if (!is_first(self, rank)) continue;
        name_ranks(self, name, rank);
        (void)fprintf(to, "  %-28s", name);
        print(self, &self->ranks[rank], to);
        (void)fputc('\n', to);
    }
}

static void print_memory_row(const weft_all_rank_plan *self, const weft_rank_plan *plan, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)self;
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->bytes.category[i]));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->bytes.spare));
    (void)fprintf(to, " %17s", weft_unit_count(text, plan->bytes.total));
    (void)fprintf(to, " %11s", weft_unit_bytes(text, plan->padding));
    (void)fprintf(to, " %11s", plan->updated > 0 ? weft_unit_count(text, plan->updated) : "nothing");
}

static void print_memory(const weft_all_rank_plan *self, FILE *to) {
    (void)fprintf(to, "memory of each rank at its highest moment\n  %-28s", "ranks");
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++) (void)fprintf(to, " %11s", weft_memory_category_name(i));
    (void)fprintf(to, " %11s %17s %11s %11s\n", "gaps", "total, bytes", "padding", "updates");
    print_rank_rows(self, to, print_memory_row);
}

/* Returns true if any rank sends bytes of this kind. */
static bool is_sent(const weft_all_rank_plan *self, int32_t kind) {
    for (int32_t rank = 0; rank < self->world; rank++)
        if (self->ranks[rank].sent[kind] > 0) return true;
    return false;
}

static void print_sent_row(const weft_all_rank_plan *self, const weft_rank_plan *plan, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
        if (is_sent(self, kind)) (void)fprintf(to, " %15s", weft_unit_count(text, plan->sent[kind]));
    (void)fprintf(to, " %15s", weft_unit_count(text, plan->total_sent));
    if (self->nodes > 1) (void)fprintf(to, " %15s", weft_unit_count(text, plan->to_nodes));
}

static void print_sent(const weft_all_rank_plan *self, FILE *to) {
    (void)fprintf(to, "sent by each rank in a step, bytes\n  %-28s", "ranks");
    for (int32_t kind = 0; kind < WEFT_N_TRAFFIC; kind++)
        if (is_sent(self, kind)) (void)fprintf(to, " %15s", weft_traffic_name(kind));
    (void)fprintf(to, " %15s%s\n", "total", self->nodes > 1 ? "  to other nodes" : "");
    print_rank_rows(self, to, print_sent_row);
}

void weft_all_rank_plan_print(const weft_all_rank_plan *self, FILE *to) {
    print_memory(self, to);
    print_sent(self, to);
}

/* ---- links ---- */

typedef void link_fn(void *context, int32_t from, int32_t first, int32_t last, int64_t bytes);

/* Calls visit for the links; consecutive receivers of equally many bytes are one call. */
static bool visit_links(const weft_all_rank_plan *self, link_fn *visit, void *context) {
    int64_t *to = malloc((size_t)self->world * sizeof *to);
    for (int32_t rank = 0; to != NULL && rank < self->world; rank++) {
        weft_all_rank_plan_links(self, to, rank);
        for (int32_t first = 0, last = 0; first < self->world; first = last + 1) {
            for (last = first; last + 1 < self->world && to[last + 1] == to[first];) last++;
            if (to[first] > 0) visit(context, rank, first, last, to[first]);
        }
    }
    free(to);
    return to != NULL;
}

static void print_link(void *context, int32_t from, int32_t first, int32_t last, int64_t bytes) {
    char text[WEFT_UNIT_SIZE], name[32];
    if (first == last) (void)snprintf(name, sizeof name, "%d", (int)first);
    else (void)snprintf(name, sizeof name, "each of %d-%d", (int)first, (int)last);
    (void)fprintf(context, "  %6d -> %-28s %18s\n", (int)from, name, weft_unit_count(text, bytes));
}

weft_status weft_all_rank_plan_print_links(const weft_all_rank_plan *self, FILE *to, weft_error *err) {
    (void)fprintf(to, "bytes on each link in a step\n");
    if (visit_links(self, print_link, to)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the links of %d ranks", (int)self->world);
}

static void add_link(void *context, int32_t from, int32_t first, int32_t last, int64_t bytes) {
    (void)json_array_append_new(context, json_pack("{s:i, s:[i, i], s:I}", "from", (int)from, "to", (int)first,
                                                   (int)last, "bytes", (json_int_t)bytes));
}

json_t *weft_all_rank_plan_links_array(const weft_all_rank_plan *self) {
    json_t *links = json_array();
    if (links == NULL || visit_links(self, add_link, links)) return links;
    json_decref(links);
    return NULL;
}

/* ---- objects ---- */

/* Returns {"name": bytes} of numbers [first, n). */
static json_t *bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index)) {
    json_t *object = json_object();
    for (int i = first; i < n; i++) (void)json_object_set_new(object, name(i), json_integer(bytes[i]));
    return object;
}

json_t *weft_memory_object(const weft_plan_bytes *b) {
    json_t *memory = bytes_object(b->category, 0, WEFT_N_MEMORY_CATEGORIES, weft_memory_category_name);
    (void)json_object_set_new(memory, "gaps", json_integer(b->spare));
    (void)json_object_set_new(memory, "total", json_integer(b->total));
    return memory;
}

static json_t *sent_object(const weft_rank_plan *plan) {
    json_t *sent = bytes_object(plan->sent, WEFT_TRAFFIC_OTHER + 1, WEFT_N_TRAFFIC, weft_traffic_name);
    (void)json_object_set_new(sent, "total", json_integer(plan->total_sent));
    (void)json_object_set_new(sent, "to_other_nodes", json_integer(plan->to_nodes));
    return sent;
}

static json_t *instructions_object(const weft_rank_plan *plan) {
    json_t *instructions = json_object();
    for (int32_t kind = WEFT_INSTRUCTION_COUNT; kind <= WEFT_INSTRUCTION_REFRESH; kind++)
        if (plan->instructions[kind] > 0)
            (void)json_object_set_new(instructions, weft_instruction_kind_name(kind),
                                      json_integer(plan->instructions[kind]));
    return instructions;
}

static json_t *numbers(const weft_all_rank_plan *self, int32_t rank) {
    json_t *ranks = json_array();
    for (int32_t r = rank; r < self->world; r++)
        if (ranks_plan_alike(&self->ranks[r], &self->ranks[rank])) (void)json_array_append_new(ranks, json_integer(r));
    return ranks;
}

json_t *weft_all_rank_plan_array(const weft_all_rank_plan *self) {
    json_t *rows = json_array();
    for (int32_t rank = 0; rank < self->world; rank++) {
        const weft_rank_plan *plan = &self->ranks[rank];
        if (!is_first(self, rank)) continue;
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "ranks", numbers(self, rank), "memory",
                      weft_memory_object(&plan->bytes), "lines",
                      bytes_object(plan->bytes.line, 0, WEFT_N_ACCOUNT_LINES, weft_account_name), "padding_bytes",
                      (json_int_t)plan->padding, "kept", (json_int_t)plan->kept, "updated", (json_int_t)plan->updated,
                      "sent", sent_object(plan), "instructions", instructions_object(plan)));
    }
    return rows;
}
