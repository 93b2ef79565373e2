/* Data plugin `text`: order of epochs, split, fingerprint, and their independence of threads and seeds. */
#include "text_rig.h"

#include <sched.h>
#include <time.h>

/* --- epochs --- */

/* Writes n documents of one full sequence each: document d is row content d. */
static void make_rows_of(rig *r, int n, uint64_t seed) {
    int *lengths = malloc((size_t)n * sizeof *lengths);
    for (int d = 0; d < n; d++) lengths[d] = 5;
    write_numbered("d.txt", 0, lengths, n);
    free(lengths);
    *r = rig_of(1);
    r->job.seed = seed;
    RIG_MAKE(r, "data.path=d.txt", "data.document=line", "data.context=4");
    ck_assert_uint_eq(rig_split(r, WEFT_SPLIT_TRAIN).rows, (uint64_t)n);
}

/* Returns the document at `row` of the training stream. */
static int document_at(const rig *r, uint64_t row) {
    rig_micro_batch micro_batch = rig_read(r, WEFT_SPLIT_TRAIN, row, 1);
    const int document = micro_batch.micro_batch.ids[0] / MOST_IDS;
    rig_micro_batch_free(&micro_batch);
    return document;
}

static void read_epoch(const rig *r, int *out, int n, uint64_t epoch) {
    for (int i = 0; i < n; i++) out[i] = document_at(r, epoch * (uint64_t)n + (uint64_t)i);
}

static bool is_permutation(const int *order, int n) {
    bool *seen = calloc((size_t)n, sizeof *seen);
    bool good = true;
    for (int i = 0; i < n; i++) {
        good = good && order[i] >= 0 && order[i] < n && !seen[order[i]];
        if (good) seen[order[i]] = true;
    }
    free(seen);
    return good;
}

TEST(each_epoch_has_each_row_once) {
    static const int sizes[] = {1, 2, 3, 4, 5, 16, 17, 64, 100, 257, 1000};
    static int order[1000];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            rig r;
            make_rows_of(&r, sizes[k], seed);
            for (uint64_t epoch = 0; epoch < 5; epoch++) {
                read_epoch(&r, order, sizes[k], epoch);
                must(is_permutation(order, sizes[k]));
            }
            rig_end(&r);
        }
}

TEST(epochs_and_seeds_differ) {
    enum { N = 60, EPOCHS = 12 };
    static int orders[3 * EPOCHS][N];
    static const uint64_t seeds[] = {1, 2, (uint64_t)1 << 40}; /* all bits are significant */
    for (int k = 0; k < 3; k++) {
        rig r;
        make_rows_of(&r, N, seeds[k]);
        for (int epoch = 0; epoch < EPOCHS; epoch++) read_epoch(&r, orders[k * EPOCHS + epoch], N, (uint64_t)epoch);
        rig_end(&r);
    }
    for (int a = 0; a < 3 * EPOCHS; a++)
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int i = 0; i < N; i++) same += orders[a][i] == orders[b][i];
            ck_assert_msg(same < 12, "orders %d and %d agree in %d of %d places", a, b, same, N);
        }
}

/* Every sequence is about equally frequent at every position of an epoch. */
TEST(orders_are_even) {
    enum { N = 5, EPOCHS = 2000 };
    int counts[N][N] = {{0}}, order[N];
    double chi = 0;
    rig r;
    make_rows_of(&r, N, 7);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        read_epoch(&r, order, N, epoch);
        for (int i = 0; i < N; i++) counts[i][order[i]]++;
    }
    for (int i = 0; i < N; i++)
        for (int d = 0; d < N; d++)
            chi += (counts[i][d] - EPOCHS / (double)N) * (counts[i][d] - EPOCHS / (double)N) / (EPOCHS / (double)N);
    ck_assert_msg(chi < 45, "chi-square %.1f of 16 degrees of freedom", chi); /* exceeded for about one seed in 7000 */
    rig_end(&r);
}

TEST(batches_run_across_epoch_ends) {
    enum { N = 7 };
    rig r;
    make_rows_of(&r, N, 3);
    for (uint64_t first = 0; first < 40; first += 4) {
        rig_micro_batch micro_batch = rig_read(&r, WEFT_SPLIT_TRAIN, first, 4);
        ck_assert_int_eq(micro_batch.micro_batch.n_targets, 16); /* no sequence of the stream is padding */
        for (uint64_t i = 0; i < 4; i++)
            ck_assert_int_eq(micro_batch.micro_batch.ids[i * 4] / MOST_IDS, document_at(&r, first + i));
        rig_micro_batch_free(&micro_batch);
    }
    rig_end(&r);
}

TEST(a_far_row_answers_at_once) {
    enum { N = 100 };
    const uint64_t far = 1000000000000u; /* a whole number of epochs */
    int order[N];
    struct timespec begin, end;
    rig r;
    make_rows_of(&r, N, 3);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    read_epoch(&r, order, N, far / N);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    ck_assert(is_permutation(order, N));
    ck_assert_int_eq(document_at(&r, far), order[0]);
    ck_assert_int_lt(end.tv_sec - begin.tv_sec, 5); /* a replay would take hours */
    rig_end(&r);
}

/* Splits with a single pass have the order of the packing, for any seed. */
TEST(validation_and_all_have_a_fixed_order) {
    static const int lengths[] = {3, 9, 4, 5, 7, 30, 2, 8, 11, 6};
    uint64_t hashes[2][2] = {{0}};
    write_numbered("t.txt", 0, lengths, 10);
    write_numbered("v.txt", 10, lengths, 10);
    for (int seed = 0; seed < 2; seed++) {
        rig r = rig_of(1);
        r.job.seed = (uint64_t)seed;
        RIG_MAKE(&r, "data.path=t.txt", "data.validation=v.txt", "data.document=line", "data.context=8");
        for (int split = WEFT_SPLIT_VALIDATION; split <= WEFT_SPLIT_ALL; split++) {
            const int32_t rows = (int32_t)rig_split(&r, split).rows;
            rig_micro_batch micro_batch = rig_read(&r, split, 0, rows);
            ck_assert_int_gt(rows, 5);
            for (int32_t i = 0; i < rows; i++)
                hashes[seed][split - 1] = hashes[seed][split - 1] * 31 + rig_row_hash(&micro_batch, i);
            ck_assert_int_eq(micro_batch.micro_batch.ids[0] / MOST_IDS >= 10, split == WEFT_SPLIT_VALIDATION);
            rig_micro_batch_free(&micro_batch);
        }
        rig_end(&r);
    }
    ck_assert_mem_eq(hashes[0], hashes[1], sizeof hashes[0]);
}

/* --- split --- */

enum { DOCUMENTS = 40 };

/* Sets seen[d] = 1 for the documents of a split. */
static void documents_of(const rig *r, int32_t split, char *seen) {
    const weft_split_info info = rig_split(r, split);
    uint64_t count = 0;
    memset(seen, 0, DOCUMENTS);
    for (uint64_t row = 0; row < info.rows; row++) {
        rig_micro_batch micro_batch = rig_read(r, split, row, 1);
        for (int t = 0; t < micro_batch.micro_batch.length; t++)
            if (micro_batch.micro_batch.weights[t] > 0) seen[micro_batch.micro_batch.ids[t] / MOST_IDS] = 1;
        rig_micro_batch_free(&micro_batch);
    }
    for (int d = 0; d < DOCUMENTS; d++) count += seen[d] == 1;
    ck_assert_uint_eq(count, info.documents);
}

/* Sets out[d] = 1 for validation. Checks that train and validation are disjoint and complete. useful: number of
 * documents with a target. */
static void split_with(char *out, const char *validation, uint64_t seed, const char *context, uint64_t useful) {
    char train[DOCUMENTS], all[DOCUMENTS], key[64];
    rig r = rig_of(1);
    r.job.seed = seed;
    (void)snprintf(key, sizeof key, "data.validation=%s", validation);
    RIG_MAKE(&r, "data.path=d.txt", "data.document=line", key, context);
    documents_of(&r, WEFT_SPLIT_TRAIN, train);
    documents_of(&r, WEFT_SPLIT_VALIDATION, out);
    documents_of(&r, WEFT_SPLIT_ALL, all);
    for (int d = 0; d < DOCUMENTS; d++) {
        must(!(train[d] && out[d]));
        must(all[d] == (train[d] || out[d]));
    }
    ck_assert_uint_eq(rig_split(&r, WEFT_SPLIT_ALL).documents, useful);
    ck_assert_uint_eq(rig_split(&r, WEFT_SPLIT_TRAIN).documents + rig_split(&r, WEFT_SPLIT_VALIDATION).documents,
                      useful);
    ck_assert_uint_eq(rig_split(&r, WEFT_SPLIT_TRAIN).targets + rig_split(&r, WEFT_SPLIT_VALIDATION).targets,
                      rig_split(&r, WEFT_SPLIT_ALL).targets);
    rig_end(&r);
}

static int ones(const char *marks) {
    int n = 0;
    for (int d = 0; d < DOCUMENTS; d++) n += marks[d];
    return n;
}

/* With `idle`, every fourth document has no target. */
static uint64_t write_documents(int idle) {
    int lengths[DOCUMENTS];
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = idle && d % 4 == 3 ? d % 2 : 2 + d * 7 % 31;
    write_numbered("d.txt", 0, lengths, DOCUMENTS);
    return idle ? 30 : 40;
}

TEST(the_split_has_its_size) {
    static const struct {
        const char *validation;
        int of_40, of_30;
    } rows[] = {{"1", 1, 1},    {"7", 7, 7},    {"29", 29, 29},   {"0.5", 20, 15}, {"0.1", 4, 3},
                {"0.01", 1, 1}, {"1e-9", 1, 1}, {"0.96", 38, 29}, {"1e1", 10, 10}};
    char marks[DOCUMENTS];
    for (int idle = 0; idle < 2; idle++) {
        const uint64_t useful = write_documents(idle);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            split_with(marks, rows[i].validation, 1, "data.context=16", useful);
            ck_assert_msg(ones(marks) == (idle ? rows[i].of_30 : rows[i].of_40), "validation = %s takes %d",
                          rows[i].validation, ones(marks));
        }
    }
}

TEST(the_split_comes_from_the_seed) {
    char first[DOCUMENTS], again[DOCUMENTS], longer[DOCUMENTS], more[DOCUMENTS], other[DOCUMENTS];
    int differ = 0, taken[DOCUMENTS] = {0};
    const uint64_t useful = write_documents(0);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        split_with(first, "8", seed, "data.context=16", useful);
        split_with(other, "8", seed + 1000, "data.context=16", useful);
        differ += memcmp(first, other, DOCUMENTS) != 0;
        for (int d = 0; d < DOCUMENTS; d++) taken[d] += first[d];
        if (seed > 5) continue;
        split_with(again, "0.2", seed, "data.context=16", useful);
        split_with(longer, "8", seed, "data.context=5", useful);
        split_with(more, "9", seed, "data.context=16", useful);
        ck_assert_mem_eq(first, again, DOCUMENTS);
        ck_assert_mem_eq(first, longer, DOCUMENTS);
        for (int d = 0; d < DOCUMENTS; d++) /* a larger validation set contains the smaller one */
            must(more[d] >= first[d]);
    }
    ck_assert_int_ge(differ, 59);
    for (int d = 0; d < DOCUMENTS; d++) /* 12 of 60 on average */
        ck_assert_msg(taken[d] >= 2 && taken[d] <= 26, "document %d was chosen %d times of 60", d, taken[d]);
}

/* Documents without a target do not change the choice among the others. */
TEST(idle_documents_do_not_shift_the_split) {
    char nested[DOCUMENTS], chosen[DOCUMENTS];
    uint64_t useful = write_documents(1);
    split_with(chosen, "6", 3, "data.context=16", useful);
    useful = write_documents(0);
    for (int k = 6; k < DOCUMENTS; k++) {
        char number[16];
        int kept = 0;
        (void)snprintf(number, sizeof number, "%d", k);
        split_with(nested, number, 3, "data.context=16", useful);
        for (int d = 0; d < DOCUMENTS; d++) {
            if (d % 4 == 3) nested[d] = 0;
            kept += nested[d];
        }
        if (kept < 6) continue;
        ck_assert_mem_eq(nested, chosen, DOCUMENTS);
        return;
    }
    ck_abort_msg("six documents were never chosen");
}

TEST(a_file_of_its_own_is_the_validation) {
    static const int lengths[] = {5, 9, 40, 3, 2, 1};
    char train[DOCUMENTS], validation[DOCUMENTS], all[DOCUMENTS];
    rig r = rig_of(1);
    write_numbered("t.txt", 0, lengths, 3);
    write_numbered("2", 20, lengths, 6); /* a file of this name is used by its path */
    RIG_MAKE(&r, "data.path=t.txt", "data.document=line", "data.validation=./2", "data.context=8");
    documents_of(&r, WEFT_SPLIT_TRAIN, train);
    documents_of(&r, WEFT_SPLIT_VALIDATION, validation);
    documents_of(&r, WEFT_SPLIT_ALL, all);
    for (int d = 0; d < DOCUMENTS; d++) {
        must(train[d] == (d < 3));
        must(validation[d] == (d >= 20 && d < 25));
        must(all[d] == (d < 3)); /* of path only */
    }
    ck_assert_ptr_nonnull(strstr(r.host.log, "1 of 6 documents have fewer than two ids"));
    rig_end(&r);
}

/* --- fingerprint --- */

typedef struct variant {
    const char *a, *b, *c, *d, *e; /* overrides; NULL: absent */
} variant;

static uint64_t print_of(const variant *v, uint64_t seed, int bos) {
    uint64_t out;
    rig r = rig_of(0);
    r.job.seed = seed;
    r.tokenizer.bos = bos;
    RIG_MAKE(&r, v->a, v->b, v->c, v->d, v->e);
    out = rig_info(&r).fingerprint;
    rig_end(&r);
    return out;
}

static void write_prints(void) {
    write_text("a.txt", "first\nsecond one\nthird\nfourth is it\n");
    write_text("copy.txt", "first\n\nsecond one\r\nthird\nfourth is it");
    write_text("a.jsonl",
               "{\"text\": \"first\"}\n{\"text\": \"second one\"}\n{\"text\":\"third\"}\n{\"text\":\"fourth is it\"}");
    write_text("byte.txt", "first\nsecond onf\nthird\nfourth is it\n");
    write_text("cut.txt", "first\nsecond\none\nthird\nfourth is it\n");
    write_text("swap.txt", "second one\nfirst\nthird\nfourth is it\n");
    write_text("move.txt",
               "first\nsecond on\nethird\nfourth is it\n"); /* the same ids with another document boundary */
    write_text("v.txt", "held out\nthis\n");
    write_text("y.txt", "held\n outthis\n");
    write_text("w.txt", "held out\nthat\n");
    write_text("x.txt", "held out\n");
}

#define LINES "data.document=line"
#define SHORT "data.context=8"

TEST(the_fingerprint_tells_different_rows_apart) {
    static const variant variants[] = {
        {"data.path=a.txt", LINES, SHORT, NULL, NULL},
        {"data.path=a.txt", LINES, "data.context=7", NULL, NULL},
        {"data.path=a.txt", LINES, "data.context=1000", NULL, NULL},
        {"data.path=a.txt", "data.document=file", SHORT, NULL, NULL},
        {"data.path=byte.txt", LINES, SHORT, NULL, NULL},
        {"data.path=cut.txt", LINES, SHORT, NULL, NULL},
        {"data.path=swap.txt", LINES, SHORT, NULL, NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=1", NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=2", NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=v.txt", NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=w.txt", NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=x.txt", NULL},
        {"data.path=a.txt", LINES, SHORT, "data.validation=y.txt", NULL},
        {"data.path=move.txt", LINES, "data.context=1000", NULL, NULL},
    };
    enum { N = sizeof variants / sizeof *variants };
    uint64_t prints[N + 2];
    write_prints();
    for (int i = 0; i < N; i++) prints[i] = print_of(&variants[i], 1, 0);
    prints[N] = print_of(&variants[0], 2, 0);
    prints[N + 1] = print_of(&variants[0], 1, 1);
    for (int a = 0; a < N + 2; a++)
        for (int b = 0; b < a; b++)
            ck_assert_msg(prints[a] != prints[b], "variants %d and %d have one fingerprint", a, b);
}

TEST(equal_rows_have_one_fingerprint) {
    static const variant variants[][2] = {
        {{"data.path=a.txt", LINES, SHORT, NULL, NULL}, {"data.path=copy.txt", LINES, SHORT, NULL, NULL}},
        {{"data.path=a.txt", LINES, SHORT, NULL, NULL}, {"data.path=a.jsonl", SHORT, NULL, NULL, NULL}},
        {{"data.path=a.txt", LINES, SHORT, "data.validation=2", NULL},
         {"data.path=a.txt", LINES, SHORT, "data.validation=0.5", NULL}},
        {{"data.path=a.txt", LINES, SHORT, "data.validation=v.txt", NULL},
         {"data.path=copy.txt", LINES, SHORT, "data.validation=./v.txt", "data.format=text"}},
    };
    write_prints();
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        ck_assert_uint_eq(print_of(&variants[i][0], 1, 0), print_of(&variants[i][1], 1, 0));
}

/* One changed byte in any document, including validation, changes the fingerprint. */
TEST(every_byte_takes_part) {
    static const variant by_number = {"data.path=m.txt", LINES, SHORT, "data.validation=0.5", NULL};
    static const variant by_file = {"data.path=a.txt", LINES, SHORT, "data.validation=m.txt", NULL};
    char text[] = "first\nsecond one\nthird\nfourth is it\n";
    uint64_t whole[2];
    write_prints();
    write_text("m.txt", text);
    whole[0] = print_of(&by_number, 1, 0);
    whole[1] = print_of(&by_file, 1, 0);
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '\n') continue;
        *at ^= 1;
        write_text("m.txt", text);
        ck_assert_uint_ne(print_of(&by_number, 1, 0), whole[0]);
        ck_assert_uint_ne(print_of(&by_file, 1, 0), whole[1]);
        *at ^= 1;
    }
}

/* --- threads --- */

/* Hashes all observable results. */
static uint64_t see(const rig *r) {
    uint64_t hash = rig_info(r).fingerprint;
    for (int split = 0; split < 3; split++) {
        const weft_split_info info = rig_split(r, split);
        rig_micro_batch micro_batch = rig_read(r, split, 0, (int32_t)info.rows);
        for (int32_t i = 0; i < (int32_t)info.rows; i++) hash = hash * 31 + rig_row_hash(&micro_batch, i);
        hash = hash * 31 + info.tokens;
        rig_micro_batch_free(&micro_batch);
    }
    return hash;
}

/* Writes enough for several groups of tasks: 6 MiB. */
static void write_much(void) {
    FILE *file = fopen("much.jsonl", "wb");
    uint64_t state = 4;
    char text[2048];
    ck_assert_ptr_nonnull(file);
    for (long written = 0; written < 6 << 20;) {
        const uint32_t n = chance(&state, 2000);
        for (uint32_t i = 0; i < n; i++) text[i] = (char)('a' + chance(&state, 26));
        text[n] = '\0';
        written += fprintf(file, "{\"n\": 1, \"text\": \"%s\"}\n", text);
    }
    ck_assert_int_eq(fclose(file), 0);
}

TEST(threads_do_not_matter) {
    uint64_t seen[4]; /* sequential, forward and backward; on one processor; on all */
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    write_much();
    for (int i = 0; i < 4; i++) {
        rig r = rig_of(0);
        r.tokenizer.bos = 1;
        r.host.order = i == 0 ? RIG_FORWARD : i == 1 ? RIG_BACKWARD : RIG_THREADS;
        ck_assert_int_eq(sched_setaffinity(0, sizeof all, i == 2 ? &one : &all), 0);
        RIG_MAKE(&r, "data.path=much.jsonl", "data.context=512", "data.validation=0.1");
        ck_assert_int_gt(r.host.progress_calls, 1);
        seen[i] = see(&r);
        rig_end(&r);
        ck_assert_uint_eq(seen[i], seen[0]);
    }
}

/* The error names the first bad document, regardless of threads, and encoding stops soon after it. */
TEST(the_first_bad_document_is_named) {
    for (int order = RIG_FORWARD; order <= RIG_THREADS; order++) {
        const char *const overrides[] = {"data.path=much.txt", LINES, NULL};
        weft_error err = WEFT_ERROR_INIT;
        FILE *file = fopen("much.txt", "wb");
        rig r = rig_of(0);
        ck_assert_ptr_nonnull(file);
        for (int i = 1; i <= 200; i++)
            (void)fprintf(file, "%d %s%65536s\n", i, i == 41 || i == 60 || i == 199 ? "!" : "", "x");
        ck_assert_int_eq(fclose(file), 0);
        r.tokenizer.fails = WEFT_E_DATA;
        r.host.order = (rig_order)order;
        ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_DATA);
        ck_assert_says(err, "much.txt:41: an exclamation mark is too much");
        ck_assert_int_eq(r.host.progress_calls, 1);
        rig_end(&r);
    }
}

int main(void) {
    TCase *tests = tcase_create("stream");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, scratch_enter, scratch_leave);
    return run_tests(tests);
}
