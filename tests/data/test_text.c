/* Sequences of the data plugin `text`: every target once, chunks, isolation, packing, and micro-batches of any size. */
#include "text_rig.h"

/* Checks the arrays of a micro-batch: (rows, length) each. */
static void check_parts(const rig_micro_batch *micro_batch, const void *ids, const void *targets, const void *weights,
                        const void *starts, const void *positions) {
    ck_assert_mem_eq(micro_batch->micro_batch.ids, ids, 4 * micro_batch->places);
    ck_assert_mem_eq(micro_batch->micro_batch.targets, targets, 4 * micro_batch->places);
    ck_assert_mem_eq(micro_batch->micro_batch.weights, weights, 4 * micro_batch->places);
    ck_assert_mem_eq(micro_batch->micro_batch.starts, starts, 4 * micro_batch->places);
    ck_assert_mem_eq(micro_batch->micro_batch.positions, positions, 4 * micro_batch->places);
}

TEST(a_small_case_by_hand) {
    /* Six ids and three with context 4: a chunk of four targets; its tail of one in a sequence with the second
     * document. */
    static const int32_t ids[2][4] = {{0, 1, 2, 3}, {4, 1000, 1001, 0}};
    static const int32_t targets[2][4] = {{1, 2, 3, 4}, {5, 1001, 1002, 0}};
    static const float weights[2][4] = {{1, 1, 1, 1}, {1, 1, 1, 0}};
    static const int32_t starts[2][4] = {{0, 0, 0, 0}, {0, 1, 1, 3}};
    static const int32_t positions[2][4] = {{0, 1, 2, 3}, {0, 0, 1, 0}};
    const int lengths[] = {6, 3};
    rig r = rig_of(1);
    rig_micro_batch micro_batch;
    write_numbered("d.txt", 0, lengths, 2);
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.context=4");
    micro_batch = rig_read(&r, WEFT_SPLIT_ALL, 0, 2);
    ck_assert_int_eq(micro_batch.micro_batch.n_targets, 7);
    check_parts(&micro_batch, ids, targets, weights, starts, positions);
    rig_micro_batch_free(&micro_batch);
    rig_end(&r);
}

/* Sequences of 8, 5 and 4 targets, since no two fit together. The length of a micro-batch is that of its longest
 * sequence. */
TEST(micro_batches_of_several_lengths_by_hand) {
    static const int32_t ids[2][5] = {{1000, 1001, 1002, 1003, 1004}, {2000, 2001, 2002, 2003, 0}};
    static const int32_t targets[2][5] = {{1001, 1002, 1003, 1004, 1005}, {2001, 2002, 2003, 2004, 0}};
    static const float weights[2][5] = {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 0}};
    static const int32_t starts[2][5] = {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 4}};
    static const int32_t positions[2][5] = {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 0}};
    static const struct {
        uint64_t first;
        int32_t rows, length, targets;
    } all[] = {{0, 1, 8, 8}, {1, 1, 5, 5}, {2, 1, 4, 4}, {3, 1, 4, 0}, {0, 3, 8, 17}, {2, 2, 4, 4}, {1, 2, 5, 9}};
    const int documents[] = {9, 6, 5};
    const int32_t lengths[] = {4, 5, 8};
    rig r = rig_of(1);
    write_numbered("d.txt", 0, documents, 3);
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.context=8", "data.lengths=4, 5");
    ck_assert_int_eq(rig_info(&r).n_lengths, 3);
    ck_assert_mem_eq(rig_info(&r).lengths, lengths, sizeof lengths);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        rig_micro_batch micro_batch = rig_read(&r, WEFT_SPLIT_ALL, all[i].first, all[i].rows);
        ck_assert_int_eq(micro_batch.micro_batch.length, all[i].length);
        ck_assert_int_eq(micro_batch.micro_batch.n_targets, all[i].targets);
        if (all[i].length == 5 && all[i].rows == 2) check_parts(&micro_batch, ids, targets, weights, starts, positions);
        rig_micro_batch_free(&micro_batch);
    }
    rig_end(&r);
}

/* --- random documents --- */

enum { MOST_DOCUMENTS = 64 };

typedef struct sample {
    int n, context;
    int lengths[MOST_DOCUMENTS]; /* in ids */
    char key[32];                /* "data.context=..." */
} sample;

/* Makes random documents: empty, one or two ids, complete chunks and one id more or less, and several chunks. */
static sample make_sample(uint64_t seed) {
    sample out;
    uint64_t state = seed * 977 + 5;
    out.n = 1 + (int)chance(&state, MOST_DOCUMENTS - 1);
    out.context = 1 + (int)chance(&state, seed % 3 == 0 ? 5 : 130);
    for (int d = 0; d < out.n; d++) {
        const uint32_t sort = chance(&state, 4);
        int n = (int)chance(&state, 4);
        if (sort == 1) n = out.context * (int)(1 + chance(&state, 3)) + (int)chance(&state, 3);
        if (sort == 2) n = (int)chance(&state, (uint32_t)out.context + 2);
        if (sort == 3) n = (int)chance(&state, 500);
        out.lengths[d] = n < MOST_IDS ? n : MOST_IDS;
    }
    out.lengths[0] = 2 + (int)chance(&state, 90);
    (void)snprintf(out.key, sizeof out.key, "data.context=%d", out.context);
    write_numbered("d.txt", 0, out.lengths, out.n);
    return out;
}

/* Checks the chunk at position `at` of a sequence and marks its targets. Returns the position after it. */
static int check_window(const weft_micro_batch *micro_batch, size_t base, int at, const sample *s,
                        unsigned char *seen) {
    const int document = micro_batch->ids[base + (size_t)at] / MOST_IDS,
              first = micro_batch->ids[base + (size_t)at] % MOST_IDS;
    int t = at;
    must(document < s->n);
    ck_assert_msg(first % s->context == 0, "a window begins at %d; context %d", first, s->context);
    for (; t < micro_batch->length && micro_batch->weights[base + (size_t)t] > 0 &&
           micro_batch->starts[base + (size_t)t] == at;
         t++) {
        const int place = first + t - at, id = document * MOST_IDS + place;
        must(micro_batch->ids[base + (size_t)t] == id);
        must(micro_batch->targets[base + (size_t)t] == id + 1);
        must(place + 1 < s->lengths[document]);
        must(seen[id] == 0);
        seen[id] = 1;
    }
    ck_assert_msg(t - at == s->context || first + t - at + 1 == s->lengths[document],
                  "a window of %d at %d of %d ids is neither full nor a tail", t - at, first, s->lengths[document]);
    return t;
}

static void check_row(const weft_micro_batch *micro_batch, int row, const sample *s, unsigned char *seen) {
    const size_t base = (size_t)row * (size_t)micro_batch->length;
    int at = 0;
    while (at < micro_batch->length && micro_batch->weights[base + (size_t)at] > 0) {
        must(micro_batch->starts[base + (size_t)at] == at);
        at = check_window(micro_batch, base, at, s, seen);
    }
    for (; at < micro_batch->length; at++) /* only padding follows */
        must(micro_batch->weights[base + (size_t)at] == 0.0f);
}

/* Reads an epoch in random batches: every target once, and as many as split_info reports. */
static void check_epoch(const rig *r, int32_t split, const sample *s, uint64_t *state) {
    const weft_split_info info = rig_split(r, split);
    unsigned char *seen = calloc((size_t)s->n * MOST_IDS, 1);
    uint64_t documents = 0, tokens = 0, targets = 0, got = 0;
    for (uint64_t row = 0; row < info.rows;) {
        const uint32_t most = (uint32_t)(info.rows - row);
        const int32_t rows = 1 + (int32_t)chance(state, most < 7 ? most : 7);
        rig_micro_batch micro_batch = rig_read(r, split, row, rows);
        for (int i = 0; i < rows; i++) check_row(&micro_batch.micro_batch, i, s, seen);
        got += (uint64_t)micro_batch.micro_batch.n_targets;
        row += (uint64_t)rows;
        rig_micro_batch_free(&micro_batch);
    }
    for (int d = 0; d < s->n; d++) {
        for (int i = 0; i < MOST_IDS; i++) must(seen[d * MOST_IDS + i] == (i + 1 < s->lengths[d]));
        if (s->lengths[d] < 2) continue;
        documents++;
        tokens += (uint64_t)s->lengths[d];
        targets += (uint64_t)(s->lengths[d] - 1);
    }
    must(got == targets);
    must(info.targets == targets);
    must(info.tokens == tokens);
    must(info.documents == documents);
    free(seen);
}

TEST(every_target_is_there_once) {
    uint64_t state = 1;
    for (uint64_t seed = 0; seed < 150; seed++) {
        const sample s = make_sample(seed);
        rig r = rig_of(1);
        r.job.seed = seed;
        RIG_MAKE(&r, "data.path=d.txt", "data.document=line", s.key);
        ck_assert_int_eq(rig_info(&r).n_lengths, 1);
        ck_assert_int_eq(rig_info(&r).lengths[0], s.context);
        check_epoch(&r, WEFT_SPLIT_TRAIN, &s, &state);
        check_epoch(&r, WEFT_SPLIT_ALL, &s, &state);
        rig_end(&r);
    }
}

/* Returns the length of the longest sequence of a micro-batch. */
static int32_t longest_row(const weft_micro_batch *micro_batch) {
    int32_t longest = 0;
    for (int32_t row = 0; row < micro_batch->rows; row++)
        for (int32_t t = longest; t < micro_batch->length; t++)
            if (micro_batch->weights[(size_t)row * (size_t)micro_batch->length + (size_t)t] > 0) longest = t + 1;
    return longest;
}

/* Checks that a shorter micro-batch has the same sequences, and padding only up to its own length. */
static void compare_micro_batches(const rig *fixed, const rig *ragged, uint64_t first, int32_t rows) {
    const weft_data_info info = rig_info(ragged);
    rig_micro_batch a = rig_read(fixed, WEFT_SPLIT_TRAIN, first, rows),
                    b = rig_read(ragged, WEFT_SPLIT_TRAIN, first, rows);
    const int32_t longest = longest_row(&a.micro_batch);
    int32_t l = 0;
    while (info.lengths[l] < longest) l++;
    ck_assert_int_eq(b.micro_batch.length, info.lengths[l]);
    for (int32_t row = 0; row < rows; row++)
        for (int32_t part = 0; part < RIG_PARTS; part++)
            must(memcmp(a.memory + (size_t)part * (a.places + RIG_GUARD) + (size_t)(row * a.micro_batch.length),
                        b.memory + (size_t)part * (b.places + RIG_GUARD) + (size_t)(row * b.micro_batch.length),
                        4 * (size_t)b.micro_batch.length) == 0);
    rig_micro_batch_free(&a);
    rig_micro_batch_free(&b);
}

TESTS(lengths_change_neither_rows_nor_order, 40) {
    const sample s = make_sample(3 * (uint64_t)_i + 1);
    char lengths[48];
    rig fixed = rig_of(1), ragged = rig_of(1);
    if (s.context < 4) return;
    (void)snprintf(lengths, sizeof lengths, "data.lengths=%d,%d", s.context / 4, s.context / 2);
    RIG_MAKE(&fixed, "data.path=d.txt", "data.document=line", s.key);
    RIG_MAKE(&ragged, "data.path=d.txt", "data.document=line", s.key, lengths);
    ck_assert_uint_eq(rig_split(&fixed, WEFT_SPLIT_TRAIN).rows, rig_split(&ragged, WEFT_SPLIT_TRAIN).rows);
    ck_assert_uint_ne(rig_info(&fixed).fingerprint, rig_info(&ragged).fingerprint);
    for (uint64_t first = 0; first < 40; first++)
        compare_micro_batches(&fixed, &ragged, first, 1 + (int32_t)(first % 3));
    rig_end(&ragged);
    rig_end(&fixed);
}

TEST(rows_do_not_depend_on_the_batch) {
    static const int32_t splits[] = {WEFT_SPLIT_TRAIN, WEFT_SPLIT_VALIDATION, WEFT_SPLIT_ALL};
    const sample s = make_sample(8);
    rig r = rig_of(1);
    uint64_t alone[64];
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.validation=3", s.key);
    for (int k = 0; k < 3; k++) {
        for (int row = 0; row < 64; row++) { /* after an epoch, and after the end of a split with a single pass */
            rig_micro_batch one = rig_read(&r, splits[k], (uint64_t)row, 1);
            alone[row] = rig_row_hash(&one, 0);
            rig_micro_batch_free(&one);
        }
        for (int batch = 2; batch < 32; batch++)
            for (int first = 0; first + batch <= 64; first += batch) {
                rig_micro_batch many = rig_read(&r, splits[k], (uint64_t)first, batch);
                for (int i = 0; i < batch; i++) must(rig_row_hash(&many, i) == alone[first + i]);
                rig_micro_batch_free(&many);
            }
    }
    rig_end(&r);
}

TEST(past_the_end_there_is_padding) {
    static const uint64_t beyond[] = {0, 1, 5, 1000000000000u};
    static const int32_t splits[] = {WEFT_SPLIT_VALIDATION, WEFT_SPLIT_ALL};
    const sample s = make_sample(4);
    rig r = rig_of(1);
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.validation=2", s.key);
    for (int k = 0; k < 2; k++) {
        const weft_split_info info = rig_split(&r, splits[k]);
        rig_micro_batch last;
        ck_assert_uint_gt(info.rows, 0);
        for (int i = 0; i < 4; i++) {
            rig_micro_batch micro_batch = rig_read(&r, splits[k], info.rows + beyond[i], 3);
            ck_assert_int_eq(micro_batch.micro_batch.n_targets, 0);
            rig_micro_batch_free(&micro_batch);
        }
        last = rig_read(&r, splits[k], info.rows - 1, 4);
        ck_assert_int_gt(last.micro_batch.n_targets, 0);
        for (size_t at = (size_t)s.context; at < last.places; at++) must(last.micro_batch.weights[at] == 0.0f);
        rig_micro_batch_free(&last);
    }
    rig_end(&r);
}

TEST(without_validation_there_are_no_such_rows) {
    const sample s = make_sample(2);
    weft_split_info none, train, all;
    rig r = rig_of(1);
    rig_micro_batch micro_batch;
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.validation=none", s.key);
    none = rig_split(&r, WEFT_SPLIT_VALIDATION);
    train = rig_split(&r, WEFT_SPLIT_TRAIN);
    all = rig_split(&r, WEFT_SPLIT_ALL);
    ck_assert(none.documents == 0 && none.rows == 0 && none.tokens == 0 && none.targets == 0);
    ck_assert(train.documents == all.documents && train.rows == all.rows && train.targets == all.targets);
    micro_batch = rig_read(&r, WEFT_SPLIT_VALIDATION, 0, 2);
    ck_assert_int_eq(micro_batch.micro_batch.n_targets, 0);
    rig_micro_batch_free(&micro_batch);
    rig_end(&r);
}

TEST(what_is_no_micro_batch_is_refused) {
    static const weft_micro_batch_request bad[] = {{sizeof *bad, 0, -1, 1, 0},
                                                   {sizeof *bad, 0, 3, 1, 0},
                                                   {sizeof *bad, 0, INT32_MAX, 1, 0},
                                                   {sizeof *bad, 0, WEFT_SPLIT_TRAIN, 0, 0},
                                                   {sizeof *bad, 0, WEFT_SPLIT_ALL, -1, 0}};
    const int lengths[] = {9};
    rig r = rig_of(1);
    write_numbered("d.txt", 0, lengths, 1);
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.context=4");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_micro_batch out = {.struct_size = (uint32_t)sizeof out};
        ck_assert_int_eq(r.table->shape(r.data, &out, &bad[i], &err), WEFT_E_HOST);
        ck_assert_int_eq(r.table->micro_batch(r.data, &out, &bad[i], &err), WEFT_E_HOST);
        ck_assert_says(err, "was requested");
        ck_assert(out.rows == 0 && out.length == 0 && out.n_targets == 0);
    }
    rig_end(&r);
}

/* BOS and EOS are ids of the document. */
TEST(bos_and_eos_count) {
    static const char text[] = "ab\ncde\n\nf\n";
    for (int with = 0; with < 4; with++) {
        const uint64_t extra = (uint64_t)((with & 1) + (with >> 1));
        weft_split_info info;
        rig r = rig_of(0);
        rig_micro_batch micro_batch;
        write_text("d.txt", text);
        r.tokenizer.bos = with & 1;
        r.tokenizer.eos = with >> 1;
        RIG_MAKE(&r, "data.path=d.txt", "data.document=line", "data.context=16");
        info = rig_split(&r, WEFT_SPLIT_ALL);
        ck_assert_uint_eq(info.documents, extra > 0 ? 3 : 2); /* a single byte has no target */
        ck_assert_uint_eq(info.tokens, (extra > 0 ? 6 : 5) + info.documents * extra);
        ck_assert_uint_eq(info.targets, info.tokens - info.documents);
        ck_assert_uint_eq(info.rows, 1);
        micro_batch = rig_read(&r, WEFT_SPLIT_ALL, 0, 1);
        ck_assert_int_eq(micro_batch.micro_batch.ids[0], r.tokenizer.bos ? BOS : 'a');
        if (r.tokenizer.eos) ck_assert_int_eq(micro_batch.micro_batch.targets[info.targets - 1], EOS);
        rig_micro_batch_free(&micro_batch);
        rig_end(&r);
    }
}

/* --- packing --- */

/* Best fit, longest first, by linear search: returns the number of sequences of `context` positions. */
static int slow_rows(const int *pieces, int n, int context) {
    int *room = calloc((size_t)n + 1, sizeof *room);
    int rows = 0;
    for (int length = context; length > 0; length--)
        for (int i = 0; i < n; i++) {
            int best = -1;
            if (pieces[i] != length) continue;
            for (int k = 0; k < rows; k++)
                if (room[k] >= length && (best < 0 || room[k] < room[best])) best = k;
            if (best < 0) {
                best = rows++;
                room[best] = context;
            }
            room[best] -= length;
        }
    free(room);
    return rows;
}

static int cut_pieces(int *out, const int *lengths, int n, int context) {
    int pieces = 0;
    for (int d = 0; d < n; d++)
        for (int left = lengths[d] - 1; left > 0; left -= context) out[pieces++] = left < context ? left : context;
    return pieces;
}

/* Checks that no two sequences fit into one: content of a later one did not fit into an earlier one. */
static void check_tight(const rig *r, int context) {
    const weft_split_info info = rig_split(r, WEFT_SPLIT_ALL);
    int64_t fill = 0, least = context, least_but_one = context;
    for (uint64_t row = 0; row < info.rows; row++) {
        const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, WEFT_SPLIT_ALL, 1, row};
        weft_micro_batch shape = {.struct_size = (uint32_t)sizeof shape};
        weft_error err = WEFT_ERROR_INIT;
        must(r->table->shape(r->data, &shape, &request, &err) == WEFT_OK);
        fill = shape.n_targets;
        must(fill > 0 && fill <= context);
        if (fill < least) {
            least_but_one = least;
            least = fill;
        } else if (fill < least_but_one) {
            least_but_one = fill;
        }
    }
    if (info.rows > 1)
        ck_assert_msg(least + least_but_one > context, "%d + %d fit into %d", (int)least, (int)least_but_one, context);
}

TEST(packing_is_best_fit_longest_first) {
    static int pieces[MOST_DOCUMENTS * MOST_IDS];
    for (uint64_t seed = 300; seed < 420; seed++) {
        const sample s = make_sample(seed);
        const int n = cut_pieces(pieces, s.lengths, s.n, s.context);
        rig r = rig_of(1);
        RIG_MAKE(&r, "data.path=d.txt", "data.document=line", s.key);
        ck_assert_uint_eq(rig_split(&r, WEFT_SPLIT_ALL).rows, (uint64_t)slow_rows(pieces, n, s.context));
        check_tight(&r, s.context);
        rig_end(&r);
    }
}

int main(void) {
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 300);
    tcase_add_checked_fixture(rows, scratch_enter, scratch_leave);
    return run_tests(rows);
}
