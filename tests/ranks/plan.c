/* Compares `weft plan --json --print-links` to ranks.json, the report of a run's ranks:
 *
 *     rank_plan PLAN.json RANKS.json
 *
 *     rank_plan share ONE.json MANY.json
 *
 * First form: every number must be equal: allocated bytes per line, and bytes sent in a step by kind and by link. The
 * peak of live memory must not exceed the plan, and not be much smaller: the padding of a sharded unit is touched late.
 * Second form: parameters, gradients and optimizer states of a rank of many must be its share of a single rank's,
 * within 1 % of padding. Prints the number of comparisons. */
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static int compared, different;

static void same(const char *what, json_int_t rank, json_int_t planned, json_int_t counted) {
    compared++;
    if (planned == counted) return;
    different++;
    (void)fprintf(stderr, "rank %lld, %s: %lld planned, %lld in the run\n", rank, what, planned, counted);
}

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) return json_integer_value(value);
    (void)fprintf(stderr, "there is no number %s\n", key);
    different++;
    return -1;
}

/* Returns the plan's row of a rank; NULL: not found. */
static const json_t *row_of(const json_t *plan, json_int_t rank) {
    size_t i, k;
    const json_t *row, *one;
    json_array_foreach(json_object_get(plan, "ranks"), i, row)
        json_array_foreach(json_object_get(row, "ranks"), k, one) if (json_integer_value(one) == rank) return row;
    return NULL;
}

static json_int_t link_of(const json_t *plan, json_int_t from, json_int_t to) {
    size_t i;
    const json_t *link;
    json_array_foreach(json_object_get(plan, "links"), i, link) {
        const json_t *range = json_object_get(link, "to");
        if (number(link, "from") == from && json_integer_value(json_array_get(range, 0)) <= to &&
            to <= json_integer_value(json_array_get(range, 1)))
            return number(link, "bytes");
    }
    return 0;
}

static void compare(const json_t *plan, const json_t *run) {
    const json_int_t rank = number(run, "rank"), steps = number(run, "steps");
    const json_t *row = row_of(plan, rank), *memory = json_object_get(row, "memory");
    const json_t *lines = json_object_get(run, "lines"), *sent = json_object_get(run, "sent"), *value;
    const json_int_t highest = number(json_object_get(row, "lines"), "arena") - number(memory, "gaps");
    const json_int_t live = number(run, "live");
    const char *key;
    size_t to;
    same("bytes taken", rank, number(memory, "total"), number(run, "taken"));
    same("its own plan", rank, number(memory, "total"), number(run, "planned"));
    json_object_foreach((json_t *)lines, key, value)
        same(key, rank, number(json_object_get(row, "lines"), key), json_integer_value(value));
    same("live bytes, to 1 %", rank, 1, live <= highest && live * 100 >= highest * 99);
    json_object_foreach((json_t *)sent, key, value)
        same(key, rank, steps * number(json_object_get(row, "sent"), key), json_integer_value(value));
    json_array_foreach(json_object_get(run, "sent_to"), to, value)
        same("a link", rank, steps * link_of(plan, rank, (json_int_t)to), json_integer_value(value));
}

/* Compares plans of the same run under fsdp, on one rank and on many. */
static void compare_shares(const json_t *one, const json_t *many) {
    static const char *const lines[] = {"parameters", "gradients", "optimizer"};
    const json_int_t world = number(many, "world");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const json_int_t whole = number(json_object_get(row_of(one, 0), "lines"), lines[i]);
        for (json_int_t rank = 0; rank < world; rank++) {
            const json_int_t share = number(json_object_get(row_of(many, rank), "lines"), lines[i]);
            compared++;
            if (whole > 0 && share * world >= whole && share * world <= whole + whole / 100) continue;
            different++;
            (void)fprintf(stderr, "rank %lld of %lld, %s: %lld bytes of %lld\n", rank, world, lines[i], share, whole);
        }
    }
}

int main(int argc, char **argv) {
    json_error_t why;
    const bool shares = argc == 4 && strcmp(argv[1], "share") == 0;
    json_t *plan = argc == 3 + shares ? json_load_file(argv[1 + shares], 0, &why) : NULL;
    json_t *whole = argc == 3 + shares ? json_load_file(argv[2 + shares], 0, &why) : NULL;
    const json_t *run = shares ? whole : json_object_get(whole, "ranks");
    const json_t *one;
    size_t i;
    if (plan == NULL || run == NULL || (!shares && json_array_size(run) != (size_t)number(plan, "world"))) {
        (void)fprintf(stderr, "rank_plan PLAN.json RANKS.json: both of one world\n");
        return 2;
    }
    if (shares) compare_shares(plan, run);
    else json_array_foreach(run, i, one) compare(plan, one);
    (void)printf("%d numbers of %d ranks\n", compared,
                 (int)(shares ? number(run, "world") : (json_int_t)json_array_size(run)));
    json_decref(plan);
    json_decref(whole);
    return different == 0 ? 0 : 1;
}
