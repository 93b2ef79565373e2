/* tests/program/test_place.c: placement of intervals in an arena: no two live intervals share a byte, and the arena is
 * not much larger than necessary. */
#include "base/place.h"
#include "base/units.h"

#include "suite.h"

#include <time.h>

static uint64_t seed = 1;

static int32_t pick(int32_t n) { /* in 0 .. n - 1 */
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((seed >> 33) % (uint64_t)n);
}

static void random_intervals(weft_live_interval *items, int32_t n, int32_t times, int32_t most_bytes) {
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = pick(times), b = pick(times);
        items[i].bytes = 1 + pick(most_bytes);
        items[i].first = a < b ? a : b;
        items[i].last = a < b ? b : a;
        items[i].offset = -1;
    }
}

static bool meet(const weft_live_interval *a, const weft_live_interval *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* True if no two intervals live at the same time share a byte, all are aligned, and the arena has the exact size. */
static bool sound(const weft_live_interval *items, int32_t n, int64_t arena) {
    int64_t end = 0;
    for (int32_t i = 0; i < n; i++) {
        if (items[i].offset < 0 || items[i].offset % 64 != 0) return false;
        if (items[i].offset + weft_cache_lines(items[i].bytes) > end)
            end = items[i].offset + weft_cache_lines(items[i].bytes);
        for (int32_t j = 0; j < i; j++)
            if (meet(&items[i], &items[j]) && items[i].offset < items[j].offset + items[j].bytes &&
                items[j].offset < items[i].offset + items[i].bytes)
                return false;
    }
    return end == arena;
}

static int64_t live_at(const weft_live_interval *items, int32_t n, int32_t time) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (items[i].first <= time && time <= items[i].last) sum += weft_cache_lines(items[i].bytes);
    return sum;
}

static void place(weft_live_interval *items, weft_packing *out, int32_t n) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_intervals_place(items, out, n, &err), err);
}

TEST(intervals_that_live_together_share_no_byte) {
    weft_live_interval items[120];
    weft_packing out;
    for (int32_t round = 0; round < 600; round++) {
        const int32_t n = 1 + pick(120), times = 1 + pick(90);
        random_intervals(items, n, times, round % 3 == 0 ? 300 : 20000);
        place(items, &out, n);
        ck_assert_msg(sound(items, n, out.arena), "round %d: %d intervals overlap or the arena is wrong", round, n);
        ck_assert(out.arena >= out.peak);
        for (int32_t time = 0; time < times; time++) {
            ck_assert(live_at(items, n, time) <= out.peak);
            if (time < out.peak_time) ck_assert(live_at(items, n, time) < out.peak);
        }
        ck_assert_int_eq(live_at(items, n, out.peak_time), out.peak);
    }
}

TEST(the_judge_of_these_tests_sees_an_overlap) {
    weft_live_interval items[2] = {{128, 0, 3, 0}, {64, 3, 5, 64}};
    ck_assert(!sound(items, 2, 128));
    items[1].offset = 128;
    ck_assert(sound(items, 2, 192));
    items[1].first = 4;
    items[1].offset = 64; /* no longer live at the same time */
    ck_assert(sound(items, 2, 128));
    items[1].offset = 32;
    ck_assert(!sound(items, 2, 128));
}

/* Returns the lowest offset for items[order[k]], given the items before it in the order. */
static int64_t lowest(const weft_live_interval *items, const int32_t *order, int32_t k) {
    const weft_live_interval *item = &items[order[k]];
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t j = 0; j < k; j++) {
            const weft_live_interval *other = &items[order[j]];
            const int64_t end = other->offset + weft_cache_lines(other->bytes);
            if (!meet(item, other) || at >= end || other->offset >= at + weft_cache_lines(item->bytes)) continue;
            at = end;
            moved = true;
        }
    }
    return at;
}

/* Returns the optimum: some order with the lowest offset for each item reaches it (the best packing's order by
 * offset). */
static int64_t brute_force(weft_live_interval *items, int32_t *order, int32_t n, int32_t k, int64_t arena,
                           int64_t best) {
    if (arena >= best) return best;
    if (k == n) return arena;
    for (int32_t i = k; i < n; i++) {
        const int32_t mine = order[i];
        int64_t end = 0;
        order[i] = order[k];
        order[k] = mine;
        items[mine].offset = lowest(items, order, k);
        end = items[mine].offset + weft_cache_lines(items[mine].bytes);
        best = brute_force(items, order, n, k + 1, end > arena ? end : arena, best);
        order[k] = order[i];
        order[i] = mine;
    }
    return best;
}

TEST(small_cases_are_as_good_as_trying_everything) {
    weft_live_interval items[8];
    weft_packing out;
    int32_t equal = 0, cases = 400;
    for (int32_t round = 0; round < cases; round++) {
        const int32_t n = 2 + pick(6);
        int32_t order[8];
        int64_t best = 0;
        for (int32_t i = 0; i < n; i++) order[i] = i;
        random_intervals(items, n, 10, 1000);
        place(items, &out, n);
        best = brute_force(items, order, n, 0, 0, INT64_MAX);
        ck_assert(out.arena >= best && best >= out.peak);
        ck_assert_msg((double)out.arena <= 1.05 * (double)best, "round %d: %lld bytes where %lld do", round,
                      (long long)out.arena, (long long)best);
        if (out.arena == best) equal++;
    }
    printf("placement equals the best there is in %d of %d small cases\n", equal, cases);
    ck_assert_int_ge(equal, cases * 98 / 100);
}

/* Makes intervals like a training step: nested tapes, chained carries, and workspace for each instruction. */
static int32_t step_like(weft_live_interval *items, int32_t segments, int32_t micro_batches) {
    int32_t n = 0;
    for (int32_t m = 0; m < micro_batches; m++) {
        const int32_t begin = m * 2 * segments, end = begin + 2 * segments - 1;
        for (int32_t s = 0; s < segments; s++) {
            const weft_live_interval tape = {s % 2 ? 50000 + 64 * s : 90000, begin + s, end - s, -1};
            const weft_live_interval carry = {8192, begin + s, end - s - 1, -1};
            const weft_live_interval gradient = {8192, end - s - 1, end - s, -1};
            const weft_live_interval up = {4096 + 512 * (s % 3), begin + s, begin + s, -1};
            const weft_live_interval down = {20000 + 640 * (s % 5), end - s, end - s, -1};
            items[n++] = tape;
            items[n++] = up;
            items[n++] = down;
            if (s + 1 == segments) continue;
            items[n++] = carry;
            items[n++] = gradient;
        }
    }
    return n;
}

TEST(a_training_step_wastes_next_to_nothing) {
    weft_live_interval *items = malloc(5 * 66 * 8 * sizeof *items);
    weft_packing out;
    const int32_t n = step_like(items, 66, 8);
    place(items, &out, n);
    ck_assert(sound(items, n, out.arena));
    printf("a step of 66 segments and 8 micro-batches: peak %lld, arena %lld\n", (long long)out.peak,
           (long long)out.arena);
    ck_assert((double)out.arena <= 1.01 * (double)out.peak);
    free(items);
}

/* Long lifetimes in a long step: the time must grow with the square of the intervals; cubic growth would take
 * minutes. */
TEST(a_step_of_many_segments_is_placed_in_seconds) {
    weft_live_interval *items = malloc(5 * 8192 * sizeof *items);
    weft_packing out;
    const int32_t n = step_like(items, 8192, 1);
    const clock_t begin = clock();
    double seconds = 0;
    place(items, &out, n);
    seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("a step of 8192 segments: %.1f s\n", seconds);
    ck_assert(out.arena >= out.peak && (double)out.arena <= 1.01 * (double)out.peak);
    ck_assert(seconds < 40);
    free(items);
}

TEST(the_same_intervals_give_the_same_offsets) {
    weft_live_interval items[100], again[100];
    weft_packing out;
    random_intervals(items, 100, 50, 5000);
    memcpy(again, items, sizeof items);
    place(items, &out, 100);
    place(again, &out, 100);
    for (int32_t i = 0; i < 100; i++) ck_assert_int_eq(items[i].offset, again[i].offset);
}

TEST(empty_and_invalid_intervals) {
    weft_error err = WEFT_ERROR_INIT;
    weft_packing out = {1, 1, 1};
    weft_live_interval item = {0, 0, 0, -1};
    place(&item, &out, 0);
    ck_assert(out.arena == 0 && out.peak == 0 && out.peak_time == -1);
    ck_assert_int_eq(weft_intervals_place(&item, &out, 1, &err), WEFT_E_HOST);
    item.bytes = 64;
    item.first = 1;
    ck_assert_int_eq(weft_intervals_place(&item, &out, 1, &err), WEFT_E_HOST);
    item.first = 0;
    item.bytes = INT64_MAX - 10;
    ck_assert_int_eq(weft_intervals_place(&item, &out, 1, &err), WEFT_E_USER);
    ck_assert_says(err, "micro_batch");
}

int main(void) {
    return run_tests(test_case("intervals", 120, NULL, NULL));
}
