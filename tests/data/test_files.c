/* Data plugin `text`: splitting of files into documents, error messages, and robustness against arbitrary bytes. */
#include "text_rig.h"

static weft_error err = WEFT_ERROR_INIT;

/* --- documents --- */

/* Checks the recorded documents: each with its length before it. */
static void check_documents(const rig *r, const char *expected, size_t bytes, size_t n, const char *what) {
    const rig_tokenizer *t = &r->tokenizer;
    if (t->seen_documents != n || t->seen_bytes != bytes || memcmp(t->seen, expected, bytes) != 0)
        ck_abort_msg("%s: %zu documents of %zu bytes, expected %zu of %zu", what, t->seen_documents,
                     t->seen_bytes - 8 * t->seen_documents, n, bytes - 8 * n);
}

static const struct {
    const char *name, *document; /* of the file; [data] document */
    const char *bytes;
    int n; /* number of bytes; 0: up to NUL */
    const char *documents[5];
    int lengths[5]; /* 0: length of the text */
} files[] = {
    {"a.txt", "file", "x", 0, {"x"}, {0}},
    {"a.txt", "file", "\n", 0, {"\n"}, {0}},
    {"a.txt", "file", "one\r\n\r\ntwo\n", 0, {"one\r\n\r\ntwo\n"}, {0}},
    {"a.txt", "file", "a\0b\xff\xfe", 5, {"a\0b\xff\xfe"}, {5}},
    {"a.txt", "line", "x", 0, {"x"}, {0}},
    {"a.txt", "line", "one\ntwo\n", 0, {"one", "two"}, {0}},
    {"a.txt", "line", "one\ntwo", 0, {"one", "two"}, {0}},
    {"a.txt", "line", "one\r\ntwo\r\n", 0, {"one", "two"}, {0}},
    {"a.txt", "line", "\n\none\n\n\ntwo\n\n", 0, {"one", "two"}, {0}},
    {"a.txt", "line", "\r\none\r\n\r\ntwo", 0, {"one", "two"}, {0}},
    {"a.txt", "line", "a\rb\r\r\nc\r", 0, {"a\rb\r", "c\r"}, {0}}, /* a single carriage return does not end a line */
    {"a.txt", "line", " one \n\t\n", 0, {" one ", "\t"}, {0}},
    {"a.txt", "line", "a\0b\n\0\n\xc3\n\xff\xff", 10, {"a\0b", "\0", "\xc3", "\xff\xff"}, {3, 1, 1, 2}},
    {"a.txt", "file", "\xef\xbb\xbfone\n", 0, {"one\n"}, {0}}, /* a byte order mark is not text */
    {"a.txt", "line", "\xef\xbb\xbfone\n", 0, {"one"}, {0}},
    {"a.txt", "paragraph", "\xef\xbb\xbfone\n\ntwo", 0, {"one", "two"}, {0}},
    {"a.jsonl", "file", "\xef\xbb\xbf{\"text\": \"one\"}\n", 0, {"one"}, {0}},
    {"a.txt", "line", "one\n\xef\xbb\xbftwo\n", 0, {"one", "\xef\xbb\xbftwo"}, {0}}, /* only at the start of the file */
    {"a.txt", "file", "\xef\xbb\xbf\xef\xbb\xbfone", 0, {"\xef\xbb\xbfone"}, {0}},
    {"a.txt", "file", "\xef\xbb", 0, {"\xef\xbb"}, {0}},
    {"a.txt", "paragraph", "x", 0, {"x"}, {0}},
    {"a.txt", "paragraph", "one\ntwo\n\nthree\n", 0, {"one\ntwo", "three"}, {0}},
    {"a.txt", "paragraph", "\n \n\none\n\n\n\ntwo", 0, {"one", "two"}, {0}},
    {"a.txt", "paragraph", "one\r\ntwo\r\n\r\nthree\r\n", 0, {"one\r\ntwo", "three"}, {0}},
    {"a.txt", "paragraph", "  one\n \t \n two \n\n", 0, {"  one", " two "}, {0}},
    {"a.txt", "paragraph", "one\n\n\xa0\n\n\0\n", 10, {"one", "\xa0", "\0"}, {0, 0, 1}},
    {"a.jsonl", "file", "{\"text\": \"one\"}", 0, {"one"}, {0}},
    {"a.jsonl", "paragraph", "{\"text\": \"one\"}\r\n{\"text\":\"two\\n\"}\r\n", 0, {"one", "two\n"}, {0}},
    {"a.jsonl", "file", " {\"x\": {\"text\": 1}, \"text\": \"\"} \n\t{\"text\":\"b\"}", 0, {"", "b"}, {0}},
    {"a.jsonl", "file", "{\"text\": \"\\u0000a\\u00e9\\ud83d\\ude00\\/\"}", 0, {"\0a\xc3\xa9\xf0\x9f\x98\x80/"}, {9}},
    {"a.jsonl", "file", "{\"text\": \"a\", \"id\": 123456789012345678901234567890, \"z\": -1.5e3}", 0, {"a"}, {0}},
};

static size_t keep_expected(char *out, int i) {
    size_t at = 0;
    for (int d = 0; d < 5 && files[i].documents[d] != NULL; d++) {
        const size_t n = files[i].lengths[d] > 0 ? (size_t)files[i].lengths[d] : strlen(files[i].documents[d]);
        memcpy(out + at, &n, 8);
        memcpy(out + at + 8, files[i].documents[d], n);
        at += 8 + n;
    }
    return at;
}

TESTS(files_become_documents, LENGTH(files)) {
    char expected[512], key[64], path[64];
    size_t bytes = keep_expected(expected, _i), n = 0;
    rig r = rig_recording();
    while (n < 5 && files[_i].documents[n] != NULL) n++;
    write_bytes(files[_i].name, files[_i].bytes, files[_i].n > 0 ? (size_t)files[_i].n : strlen(files[_i].bytes));
    (void)snprintf(path, sizeof path, "data.path=%s", files[_i].name);
    (void)snprintf(key, sizeof key, "data.document=%s", files[_i].document);
    RIG_MAKE(&r, path, key);
    check_documents(&r, expected, bytes, n, files[_i].document);
    rig_end(&r);
}

TEST(the_format_is_a_choice) {
    static const char line[] = "{\"text\": \"one\", \"q\": \"two\"}\n";
    static const struct {
        const char *name, *format, *field, *document;
    } rows[] = {{"a.jsonl", "auto", "text", "one"},  {"a.jsonl", "auto", "q", "two"},
                {"a.jsonl", "jsonl", "text", "one"}, {"a.jsonl", "text", "text", line},
                {"a.txt", "auto", "text", line},     {"a.json", "auto", "text", line},
                {"a.txt", "jsonl", "q", "two"},      {"jsonl", "auto", "text", line}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = strlen(rows[i].document);
        char path[64], format[64], field[64], expected[128];
        rig r = rig_recording();
        write_text(rows[i].name, line);
        (void)snprintf(path, sizeof path, "data.path=%s", rows[i].name);
        (void)snprintf(format, sizeof format, "data.format=%s", rows[i].format);
        (void)snprintf(field, sizeof field, "data.field=%s", rows[i].field);
        RIG_MAKE(&r, path, format, field);
        memcpy(expected, &n, 8);
        memcpy(expected + 8, rows[i].document, n);
        check_documents(&r, expected, 8 + n, 1, rows[i].name);
        rig_end(&r);
    }
}

/* The training and the validation file have the formats of their names. */
TEST(two_files_may_have_two_formats) {
    rig r = rig_recording();
    write_text("t.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}");
    write_text("v.txt", "three\n\nfour\n");
    RIG_MAKE(&r, "data.path=t.jsonl", "data.validation=v.txt", "data.document=paragraph");
    check_documents(&r, "\3\0\0\0\0\0\0\0one\3\0\0\0\0\0\0\0two\5\0\0\0\0\0\0\0three\4\0\0\0\0\0\0\0four", 47, 4,
                    "two formats");
    rig_end(&r);
}

/* --- reference implementation: a state machine over bytes --- */

typedef struct reference {
    char *out;
    size_t bytes, documents;
} reference;

static void emit(reference *to, const char *bytes, size_t n) {
    to->out = realloc(to->out, to->bytes + 8 + n);
    memcpy(to->out + to->bytes, &n, 8);
    memcpy(to->out + to->bytes + 8, bytes, n);
    to->bytes += 8 + n;
    to->documents++;
}

/* Splits into lines without their ends, or into paragraphs: lines between blank ones, without the last line end. */
static reference reference_cut(const char *text, size_t n, bool paragraphs) {
    reference out = {NULL, 0, 0};
    size_t begin = 0, end = 0; /* of the paragraph; end 0: outside of one */
    for (size_t at = 0; at < n;) {
        size_t stop = at, next = 0;
        bool blank = true;
        while (stop < n && text[stop] != '\n') stop++;
        next = stop < n ? stop + 1 : n;
        if (stop < n && stop > at && text[stop - 1] == '\r') stop--;
        for (size_t i = at; i < stop; i++) blank = blank && strchr(" \t\r", text[i]) != NULL && text[i] != '\0';
        if (!paragraphs && stop > at) emit(&out, text + at, stop - at);
        if (paragraphs && blank && end > 0) {
            emit(&out, text + begin, end - begin);
            end = 0;
        }
        if (paragraphs && !blank) {
            if (end == 0) begin = at;
            end = stop;
        }
        at = next;
    }
    if (end > 0) emit(&out, text + begin, end - begin);
    return out;
}

TEST(random_bytes_are_cut_alike) {
    static const char letters[] = "ab  \n\n\n\r\r\t\0\xff";
    static const char *const keys[] = {"data.document=line", "data.document=paragraph"};
    uint64_t state = 11;
    for (int round = 0; round < 400; round++) {
        const size_t n = 1 + chance(&state, 60);
        const int paragraphs = round % 2;
        char text[64];
        reference expected;
        const char *const overrides[] = {"data.path=a.txt", keys[paragraphs], NULL};
        rig r = rig_recording();
        for (size_t i = 0; i < n; i++) text[i] = letters[chance(&state, sizeof letters - 1)];
        write_bytes("a.txt", text, n);
        expected = reference_cut(text, n, paragraphs != 0);
        if (expected.documents > 0) {
            ck_assert_msg(rig_make(&r, overrides, &err) == WEFT_OK, "%s", err.text);
            check_documents(&r, expected.out, expected.bytes, expected.documents, "random");
        } else {
            ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_DATA);
            ck_assert_says(err, "a.txt contains no document");
        }
        free(expected.out);
        rig_end(&r);
    }
}

/* --- long documents --- */

TEST(a_long_line_is_one_document) {
    enum { N = 3 << 20 };
    static const char *const keys[] = {"data.document=file", "data.document=line", "data.document=paragraph",
                                       "data.format=jsonl"};
    char *text = malloc(N + 64);
    for (int k = 0; k < 4; k++) {
        const char *const head = k == 3 ? "{\"text\": \"" : "", *const tail = k == 3 ? "\"}" : "";
        const size_t at = strlen(head);
        weft_split_info info;
        rig_micro_batch micro_batch;
        rig r = rig_of(0);
        memcpy(text, head, at);
        memset(text + at, 'x', N);
        text[at] = 'y';
        memcpy(text + at + N, tail, strlen(tail));
        write_bytes("long.txt", text, at + N + strlen(tail));
        RIG_MAKE(&r, "data.path=long.txt", "data.context=4096", keys[k]);
        info = rig_split(&r, WEFT_SPLIT_ALL);
        ck_assert_uint_eq(info.documents, 1);
        ck_assert_uint_eq(info.tokens, N);
        ck_assert_uint_eq(info.targets, N - 1);
        ck_assert_uint_eq(info.rows, N / 4096);
        micro_batch = rig_read(&r, WEFT_SPLIT_ALL, 0, 1);
        ck_assert(micro_batch.micro_batch.ids[0] == 'y' && micro_batch.micro_batch.ids[1] == 'x');
        rig_micro_batch_free(&micro_batch);
        rig_end(&r);
    }
    free(text);
}

/* A context much longer than the file. */
TEST(a_long_context_is_padded) {
    rig_micro_batch micro_batch;
    rig r = rig_of(0);
    write_text("a.txt", "xy");
    r.job.max_context = 100000;
    RIG_MAKE(&r, "data.path=a.txt", "data.context=100000");
    micro_batch = rig_read(&r, WEFT_SPLIT_TRAIN, 0, 2);
    ck_assert_int_eq(micro_batch.micro_batch.n_targets, 2); /* the same sequence in two epochs */
    rig_micro_batch_free(&micro_batch);
    rig_end(&r);
}

/* --- errors --- */

static const struct {
    weft_status status;
    const char *says[3];
    const char *name, *bytes; /* the file, and `path` unless set by a key; NULL: not written */
    const char *keys[4];
} errors[] = {
    {WEFT_E_USER, {"[data] path = ", "/none.txt cannot be read: No such file"}, NULL, NULL, {"data.path=none.txt"}},
    {WEFT_E_USER, {"path is empty"}, NULL, NULL, {"data.path="}},
    {WEFT_E_USER, {"[data] path = / is not a regular file. Allowed: one file"}, NULL, NULL, {"data.path=/"}},
    {WEFT_E_USER, {"/dev/null is not a regular file"}, NULL, NULL, {"data.path=/dev/null"}},
    {WEFT_E_DATA, {"[data] path = ", "/a.txt is an empty file"}, "a.txt", "", {NULL}},
    {WEFT_E_DATA, {"[data] path = ", "/a.txt contains only a byte order mark"}, "a.txt", "\xef\xbb\xbf", {NULL}},
    {WEFT_E_DATA, {"/a.txt contains no document"}, "a.txt", "\xef\xbb\xbf\n", {"data.document=line"}},
    {WEFT_E_DATA,
     {"/a.jsonl:2: not a JSON object"},
     "a.jsonl",
     "\xef\xbb\xbf{\"text\": \"a b\"}\n\xef\xbb\xbf{\"text\": \"c\"}",
     {NULL}},
    {WEFT_E_DATA, {"[data] path = ", "/a.txt contains no document"}, "a.txt", "\n\r\n\n", {"data.document=line"}},
    {WEFT_E_DATA, {"/a.txt contains no document"}, "a.txt", "\n \t\r\n\n  ", {"data.document=paragraph"}},
    {WEFT_E_DATA, {"/a.txt has no target: no document has two ids"}, "a.txt", "x", {NULL}},
    {WEFT_E_DATA, {"/a.txt has no target"}, "a.txt", "x\ny\nz", {"data.document=line", "data.validation=0.5"}},
    {WEFT_E_USER, {"[data] context = 65 is longer than the model's 64"}, "a.txt", "text", {"data.context=65"}},
    {WEFT_E_USER, {"context = 0 is outside [1,16M]"}, "a.txt", "text", {"data.context=0"}},
    {WEFT_E_USER, {"lengths = 8,4 is not possible"}, "a.txt", "text", {"data.context=16", "data.lengths=8,4"}},
    {WEFT_E_USER, {"lengths = 4,4 is not"}, "a.txt", "text", {"data.lengths=4,4"}},
    {WEFT_E_USER, {"lengths = 256 is not"}, "a.txt", "text", {"data.lengths=256"}},
    {WEFT_E_USER, {"lengths = 0,8 is not"}, "a.txt", "text", {"data.lengths=0,8"}},
    {WEFT_E_USER, {"lengths = -4 is not"}, "a.txt", "text", {"data.lengths=-4"}},
    {WEFT_E_USER, {"lengths = 8;12 is not"}, "a.txt", "text", {"data.lengths=8;12"}},
    {WEFT_E_USER, {"lengths = eight is not"}, "a.txt", "text", {"data.lengths=eight"}},
    {WEFT_E_USER, {"lengths = 2.5 is not"}, "a.txt", "text", {"data.lengths=2.5"}},
    {WEFT_E_USER, {"lengths = 1,2,3,4 is not"}, "a.txt", "text", {"data.lengths=1,2,3,4"}},
    {WEFT_E_USER, {"validation = 0 is not possible: give none, a fraction"}, "a.txt", "text", {"data.validation=0"}},
    {WEFT_E_USER, {"validation = 1.5 is not possible"}, "a.txt", "text", {"data.validation=1.5"}},
    {WEFT_E_USER, {"validation = -2 is not possible"}, "a.txt", "text", {"data.validation=-2"}},
    {WEFT_E_USER, {"validation = 1e17 is not possible"}, "a.txt", "text", {"data.validation=1e17"}},
    {WEFT_E_USER, {"validation =  is not possible"}, "a.txt", "text", {"data.validation="}},
    {WEFT_E_USER, {"validation = 3 takes 3 of 3"}, "a.txt", "ab\ncd\nef", {"data.document=line", "data.validation=3"}},
    {WEFT_E_USER,
     {"validation = 1000 takes 1000 of 3"},
     "a.txt",
     "ab\ncd\nef",
     {"data.document=line", "data.validation=1e3"}},
    {WEFT_E_USER,
     {"validation = 0.9 takes 3 of 3"},
     "a.txt",
     "ab\ncd\nef",
     {"data.document=line", "data.validation=0.9"}},
    {WEFT_E_USER, {"validation = 0.1 needs at least two documents"}, "a.txt", "ab\ncd\nef", {"data.validation=0.1"}},
    {WEFT_E_USER,
     {"[data] validation = ", "/nowhere.txt cannot be read"},
     "a.txt",
     "text",
     {"data.validation=nowhere.txt"}},
    {WEFT_E_USER, {"/1k cannot be read"}, "a.txt", "text", {"data.validation=1k"}},
    {WEFT_E_DATA,
     {"[data] validation = /", "/v.txt has no target"},
     "v.txt",
     "x\ny",
     {"data.path=train.txt", "data.document=line", "data.validation=v.txt"}},
    {WEFT_E_USER, {"/a.txt:2: the tokenizer gives the id 258"}, "a.txt", "one\nt#o\nsix", {"data.document=line"}},
    {WEFT_E_DATA, {"/a.txt:3: an exclamation mark"}, "a.txt", "one\n\ntwo!\nsix!", {"data.document=line"}},
    {WEFT_E_DATA, {"/a.txt:4: an exclamation mark"}, "a.txt", "one\n\n\ntwo\nsix!", {"data.document=paragraph"}},
    {WEFT_E_DATA, {"/a.jsonl:2: the line is empty"}, "a.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"c d\"}", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:2: the line is empty"}, "a.jsonl", "{\"text\": \"a b\"}\n \r\n", {NULL}},
    {WEFT_E_DATA,
     {"/a.jsonl:2: not a JSON object: ", "(column "},
     "a.jsonl",
     "{\"text\": \"a b\"}\n{\"text\": \"c d\"\n",
     {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: not a JSON object: "}, "a.jsonl", "{\"text\": \"a\"} {\"text\": \"b\"}", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: not a JSON object: "}, "a.jsonl", "plain text", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: not a JSON object: "}, "a.jsonl", "\"text\"", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: not a JSON object: "}, "a.jsonl", "{\"text\": \"\xff\"}", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: not a JSON object: ", "dup"}, "a.jsonl", "{\"text\": \"a\", \"text\": \"b\"}", {NULL}},
    {WEFT_E_DATA, {"/a.jsonl:1: the line is JSON but not an object"}, "a.jsonl", "[\"text\"]", {NULL}},
    {WEFT_E_DATA,
     {"/a.jsonl:2: there is no field \"text\"", "question, answer."},
     "a.jsonl",
     "{\"text\": \"a b\"}\n{\"question\": \"c\", \"answer\": 1}",
     {NULL}},
    {WEFT_E_DATA, {"no field \"body\"", "fields: none."}, "a.jsonl", "{}", {"data.field=body"}},
    {WEFT_E_DATA, {"fields: a?b, \xc3\xa9."}, "a.jsonl", "{\"a\\u001bb\": 1, \"\xc3\xa9\": 2}", {NULL}},
    {WEFT_E_DATA, {"the field \"text\" is a number and must be a string"}, "a.jsonl", "{\"text\": 12}", {NULL}},
    {WEFT_E_DATA, {"the field \"text\" is an array and"}, "a.jsonl", "{\"text\": [\"a\"]}", {NULL}},
    {WEFT_E_DATA, {"the field \"text\" is an object and"}, "a.jsonl", "{\"text\": {}}", {NULL}},
    {WEFT_E_DATA, {"the field \"text\" is true or false and"}, "a.jsonl", "{\"text\": false}", {NULL}},
    {WEFT_E_DATA, {"the field \"text\" is null and"}, "a.jsonl", "{\"text\": null}", {NULL}},
};

TESTS(errors_are_sentences, LENGTH(errors)) {
    const char *const *keys = errors[_i].keys, *overrides[6] = {NULL};
    char path[64];
    int n = 0;
    rig r = rig_of(0);
    if (keys[0] == NULL || strncmp(keys[0], "data.path", 9) != 0) {
        (void)snprintf(path, sizeof path, "data.path=%s", errors[_i].name);
        overrides[n++] = path;
    }
    for (int i = 0; i < 4 && keys[i] != NULL; i++) overrides[n++] = keys[i];
    r.tokenizer.foreign = '#';
    r.tokenizer.foreign_id = 258;
    r.tokenizer.fails = WEFT_E_DATA;
    write_text("train.txt", "something to train on");
    if (errors[_i].name != NULL) write_text(errors[_i].name, errors[_i].bytes);
    r.job.max_context = keys[0] != NULL && strstr(keys[0], "context") != NULL ? 64 : 256;
    ck_assert_msg(rig_make(&r, overrides, &err) == errors[_i].status, "status %d: %s", err.code, err.text);
    ck_assert_int_eq(err.code, errors[_i].status);
    ck_assert_uint_eq(err.struct_size, sizeof err);
    ck_assert_ptr_null(r.data);
    for (int i = 0; i < 3 && errors[_i].says[i] != NULL; i++) ck_assert_says(err, errors[_i].says[i]);
    ck_assert_msg(weft_text_is_clean(err.text, strlen(err.text)), "%s", err.text);
    rig_end(&r);
}

TEST(ids_below_zero_are_refused) {
    const char *const overrides[] = {"data.path=a.txt", NULL};
    rig r = rig_of(0);
    write_text("a.txt", "a#b");
    r.tokenizer.foreign = '#';
    r.tokenizer.foreign_id = -1;
    ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_USER);
    ck_assert_says(err, "/a.txt:1: the tokenizer gives the id -1");
    rig_end(&r);
}

/* A tokenizer that fails without a message must not count as successful. */
TEST(a_silent_failure_is_a_failure) {
    static const weft_status all[] = {WEFT_E_DATA, WEFT_E_MEMORY, WEFT_E_PLUGIN};
    for (int i = 0; i < 3; i++) {
        const char *const overrides[] = {"data.path=a.txt", "data.document=line", NULL};
        rig r = rig_of(0);
        write_text("a.txt", "one\ntwo!\n");
        r.tokenizer.fails = all[i];
        r.tokenizer.silent = 1;
        ck_assert_int_eq(rig_make(&r, overrides, &err), all[i]);
        ck_assert_says(err, i == 1 ? "/a.txt:2: no memory for the ids" : "/a.txt:2: the tokenizer failed");
        rig_end(&r);
    }
}

TEST(a_pipe_is_refused_and_does_not_hang) {
    const char *const overrides[] = {"data.path=pipe", NULL};
    rig r = rig_of(0);
    ck_assert_int_eq(mkfifo("pipe", 0666), 0);
    ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_USER);
    ck_assert_says(err, "/pipe is not a regular file");
    rig_end(&r);
}

/* Another program rewrites the file during encoding. */
TEST(a_file_that_shrinks_meanwhile_is_read_as_it_was) {
    enum { N = 20000 };
    rig r = rig_recording();
    FILE *file = fopen("a.txt", "wb");
    for (int i = 0; i < N; i++) (void)fprintf(file, "line %d\n", i);
    ck_assert_int_eq(fclose(file), 0);
    r.tokenizer.cuts = "a.txt";
    RIG_MAKE(&r, "data.path=a.txt", "data.document=line");
    ck_assert_uint_eq(r.tokenizer.seen_documents, N);
    ck_assert_mem_eq(r.tokenizer.seen + r.tokenizer.seen_bytes - 10, "line 19999", 10);
    rig_end(&r);
}

TEST(many_long_field_names_are_cut) {
    char text[4096] = "{", name[64];
    const char *const overrides[] = {"data.path=a.jsonl", NULL};
    rig r = rig_of(0);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "%s\"%040d\": 1", i > 0 ? "," : "", i);
        strcat(text, name);
    }
    strcat(text, "}");
    write_text("a.jsonl", text);
    ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_DATA);
    ck_assert_says(err, "0011, .... Fix: set [data] field");
    rig_end(&r);
    memset(text, 'n', 2000);
    memcpy(text, "{\"", 2);
    (void)strcpy(text + 2000, "\": 1}");
    write_text("a.jsonl", text);
    r = rig_of(0);
    ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_DATA);
    ck_assert_says(err, "fields: names too long to show.");
    rig_end(&r);
}

/* Deep nesting is an error, not a stack overflow; worker threads parse. */
TEST(deep_nesting_is_refused) {
    enum { DEEP = 200000 };
    const char *const overrides[] = {"data.path=a.jsonl", NULL};
    char *text = malloc(DEEP + 16);
    rig r = rig_of(0);
    r.host.order = RIG_THREADS;
    memcpy(text, "{\"text\":", 8);
    memset(text + 8, '[', DEEP);
    write_bytes("a.jsonl", text, DEEP + 8);
    ck_assert_int_eq(rig_make(&r, overrides, &err), WEFT_E_DATA);
    ck_assert_says(err, "/a.jsonl:1: not a JSON object: ");
    rig_end(&r);
    free(text);
}

/* Fails each allocation once: an error message, and no leak. */
static void starve(const char *const *overrides) {
    for (int64_t fail_at = 0;; fail_at++) {
        weft_status status;
        rig r = rig_of(0);
        r.host.fail_at = fail_at;
        status = rig_make(&r, overrides, &err);
        if (status == WEFT_OK) {
            ck_assert_int_gt(fail_at, 10);
            ck_assert_int_le(r.host.allocations, fail_at);
            rig_end(&r);
            return;
        }
        ck_assert_int_eq(status, WEFT_E_MEMORY);
        ck_assert_says(err, "no memory");
        ck_assert_ptr_null(r.data);
        rig_end(&r);
    }
}

TEST(no_memory_is_a_sentence) {
    static const char *const by_number[] = {"data.path=a.jsonl", "data.validation=0.4", "data.context=32", NULL};
    static const char *const by_file[] = {"data.path=a.jsonl", "data.validation=v.txt", "data.document=line", NULL};
    FILE *file = fopen("a.jsonl", "wb");
    for (int i = 0; i < 300; i++) (void)fprintf(file, "{\"text\": \"document %d%*s\"}\n", i, i * 3 + 1, "x");
    ck_assert_int_eq(fclose(file), 0);
    write_text("v.txt", "one\ntwo\n");
    starve(by_number);
    starve(by_file);
}

int main(void) {
    TCase *documents = tcase_create("documents");
    tcase_set_timeout(documents, 300);
    tcase_add_checked_fixture(documents, scratch_enter, scratch_leave);
    return run_tests(documents);
}
