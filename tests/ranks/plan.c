/* What `weft plan --json --print-links` says of each rank against what the ranks of a run report in ranks.json:
 *
 *     rank_plan PLAN.json RANKS.json
 *
 * Every number must be the same: bytes taken, line by line, bytes sent in a step by kind and by link. What is in use at
 * the highest moment must not be more than planned, and not much less: the padding of a unit that is cut is touched
 * late. Says how many numbers it compared. */
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

/* The plan's row of a rank; NULL: it has none. */
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

int main(int argc, char **argv) {
    json_error_t why;
    json_t *plan = argc == 3 ? json_load_file(argv[1], 0, &why) : NULL;
    json_t *run = argc == 3 ? json_load_file(argv[2], 0, &why) : NULL;
    const json_t *one;
    size_t i;
    if (plan == NULL || run == NULL || json_array_size(run) != (size_t)number(plan, "world")) {
        (void)fprintf(stderr, "rank_plan PLAN.json RANKS.json: both of one world\n");
        return 2;
    }
    json_array_foreach(run, i, one) compare(plan, one);
    (void)printf("%d numbers of %d ranks\n", compared, (int)json_array_size(run));
    json_decref(plan);
    json_decref(run);
    return different == 0 ? 0 : 1;
}
