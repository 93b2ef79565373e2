/* host/tools/init/compose.c: see compose.h. */
#include "tools/init/compose.h"

#include "base/text.h"
#include "base/units.h"
#include "report/check_fit.h"
#include "tools/init/lengths.h"
#include "tools/init/peek.h"
#include "model/weights.h"
#include "program/make_plan.h"
#include "plugin/services.h"

#include <jansson.h>
#include <unistd.h>

/* Windows of long documents are no longer, so that a first run is not all attention. */
enum { MOST_CONTEXT = 1024, LEAST_CONTEXT = 32, ROWS_OF_A_STEP = 16, LEAST_ROWS = 4, STEPS_OF_AN_EPOCH = 50 };
/* Of the room the rest is for libraries, text and whoever else is there. */
enum { PERCENT_OF_ROOM = 90 };

typedef struct composer {
    weft_draft *draft;
    const weft_init_wish *wish;
    weft_peek peek;
    int64_t max_context, parameters; /* of the model */
    int32_t dtype, packed;           /* of the numbers in its files, and of blocks; packed 0: there are none */
    int64_t longest;                 /* of the documents, but for the longest of all */
    int64_t global_batch;
    char ignored[WEFT_DRAFT_TEXT]; /* [data] ignore; "": its default */
    weft_fit fit;
} composer;

/* ---- what is said of model and data ---- */

static void say_model(composer *self) {
    weft_draft *draft = self->draft;
    const weft_init_wish *wish = self->wish;
    weft_draft_set(draft, "run", "out", wish->out,
                   "The result, its checkpoints and its records: a directory that is new. A path that does not begin "
                   "with / starts here, beside this file.");
    weft_draft_set(draft, "run", "seed", "1", "The same seed, the same run.");
    weft_draft_set(draft, "model", "plugin", wish->plugin, "model_type of its config.json.");
    weft_draft_set(draft, "model", "path", wish->model, "The directory with config.json, weights and tokenizer.");
    if (wish->stored != NULL)
        weft_draft_set(draft, "model", "base", wish->stored,
                       "How frozen linears are stored, as when the adapter was trained: it has learned beside these "
                       "numbers.");
    if (wish->fresh)
        weft_draft_set(draft, "model", "start", "fresh", "Weights are drawn anew, from config.json and seed alone.");
    weft_draft_set(draft, "tokenizer", "plugin", "bpe",
                   "tokenizer.json of the model's directory; it says whether BOS and EOS stand around a document.");
    if (wish->tokens != NULL)
        weft_draft_set(draft, "tokenizer", "add", wish->tokens,
                       "The adapter was trained with these, whose rows are its own.");
    if (wish->pad != NULL) {
        weft_draft_set(draft, "tokenizer", "pad", "add", "And with a pad token ...");
        weft_draft_set(draft, "tokenizer", "pad_token", wish->pad, "... of this name.");
    }
    if (wish->adapter != NULL)
        weft_draft_set(draft, "adapter", "from", wish->adapter,
                       "What learns on, beside the model, which stays as it is: its kind, its sizes and the modules "
                       "that it changes are its own. Take it out, and the whole model is trained.");
}

static void say_jsonl(composer *self) {
    const weft_peek *peek = &self->peek;
    const bool one = strcmp(peek->field, peek->fields) == 0;
    if (!peek->is_named_so)
        weft_draft_set(self->draft, "data", "format", "jsonl",
                       "Its lines are objects, though its name does not say so.");
    if (peek->field[0] == '\0') return; /* the plugin says what is missing */
    if (!one && strcmp(peek->field, "text") != 0)
        weft_log(weft_services(), WEFT_LOG_WARN,
                 "%s has texts in the fields %s, of which %s alone is learned: [data] plugin = instruct with columns = "
                 "QUESTION, ANSWER learns one from another",
                 self->wish->data, peek->fields, peek->field);
    if (one) weft_draft_set(self->draft, "data", "field", peek->field, "The only field that holds text.");
    else
        weft_draft_set(self->draft, "data", "field", peek->field,
                       strcmp(peek->field, "text") == 0
                           ? "The field that is learned from, of those that hold text: %s."
                           : "The field with the most text, of %s. One is learned from: to learn from several, join "
                             "them into one.",
                       peek->fields);
}

static void say_plain_text(composer *self) {
    const weft_peek *peek = &self->peek;
    char count[WEFT_UNIT_SIZE];
    if (peek->paragraphs > 1)
        weft_draft_set(self->draft, "data", "document", "paragraph",
                       "What stands between blank lines is one document, %s of them%s; file learns all as one text, "
                       "line each line by itself.",
                       weft_unit_count(count, peek->paragraphs), peek->is_whole ? "" : " in its first 4 MiB");
    else if (peek->lines > 1)
        weft_draft_set(self->draft, "data", "document", "line",
                       "There are no blank lines, and %s lines%s: each is one document; file learns all as one text.",
                       weft_unit_count(count, peek->lines), peek->is_whole ? "" : " in its first 4 MiB");
    else weft_draft_set(self->draft, "data", "document", "file", "It is one line: one document.");
}

/* The model's own template is in a file of its own, or in the tokenizer's. */
static bool has_template(const char *model) {
    char path[4096];
    json_t *config = NULL;
    bool has = false;
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", model);
    if (access(path, R_OK) == 0) return true;
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model);
    (void)weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, NULL); /* its reader reports a fault */
    has = json_object_get(config, "chat_template") != NULL;
    json_decref(config);
    return has;
}

static void say_answers(composer *self) {
    weft_draft *draft = self->draft;
    weft_draft_set(draft, "data", "plugin", "instruct",
                   "Questions with answers, of which the answers are learned. weft data show prints what that means.");
    weft_draft_set(draft, "data", "path", self->wish->data, "What is learned from.");
    if (self->peek.format[0] != '\0')
        weft_draft_set(draft, "data", "format", self->peek.format,
                       "What it looks like, though its name does not say so.");
    if (self->peek.separator[0] != '\0')
        weft_draft_set(draft, "data", "separator", self->peek.separator, "What stands between the fields of its rows.");
    if (self->peek.columns[0] != '\0')
        weft_draft_set(draft, "data", "columns", self->peek.columns,
                       "The question's column and the answer's: there are these two.");
    if (!has_template(self->wish->model))
        weft_draft_set(draft, "data", "template", "alpaca",
                       "The model brings no chat template of its own. Others: llama2, llama3, chatml, mistral, gemma.");
}

static void say_data(composer *self) {
    const bool games = self->peek.is_pgn;
    if (self->peek.is_instruct) {
        say_answers(self);
        return;
    }
    if (self->peek.is_table)
        weft_log(weft_services(), WEFT_LOG_WARN,
                 "%s is a table with the columns %s, of which none are known as question and answer: its lines are "
                 "learned as text. [data] plugin = instruct with columns = QUESTION, ANSWER learns one from another",
                 self->wish->data, self->peek.fields);
    weft_draft_set(self->draft, "data", "plugin", "text",
                   games ? "Chess games in PGN: the moves of each, on one line, are a document."
                         : "Plain text, or JSONL: an object a line.");
    weft_draft_set(self->draft, "data", "path", self->wish->data, "What is learned from.");
    if (games && !self->peek.is_named_so)
        weft_draft_set(self->draft, "data", "format", "pgn", "It begins as games do, though its name does not say so.");
    if (self->peek.is_jsonl) say_jsonl(self);
    else if (!games) say_plain_text(self);
}

/* ---- what they say of themselves ---- */

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a configuration");
}

/* Of the model alone. */
static weft_status ask_model(composer *self, weft_error *err) {
    char **overrides = weft_draft_overrides(self->draft);
    weft_run *run = NULL;
    weft_plan plan = {.world = 1, .nodes = 1};
    weft_status status = overrides == NULL ? no_memory(err) : WEFT_OK;
    if (status == WEFT_OK)
        status = weft_run_open(&run, NULL, (const char *const *)overrides, (size_t)self->draft->n,
                               WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY), err);
    if (status == WEFT_OK) status = weft_plan_open(&plan, run, err);
    if (status == WEFT_OK && !self->wish->fresh)
        status = weft_weights_check(plan.declared, run->settings.model.path, err);
    self->dtype = WEFT_F32;
    if (status == WEFT_OK && !self->wish->fresh)
        status = weft_weights_dtype(&self->dtype, &self->packed, run->settings.model.path, err);
    if (status == WEFT_OK) {
        self->max_context = plan.declared->info.max_context;
        self->parameters = weft_declared_numel(plan.declared, false);
    }
    weft_plan_close(&plan);
    weft_run_close(run);
    weft_draft_free_overrides(overrides);
    return status;
}

static weft_status open_session(const composer *self, weft_session **out, char **overrides, weft_error *err) {
    return weft_session_open(out, NULL, (const char *const *)overrides, (size_t)self->draft->n, WEFT_SESSION_PROFILE,
                             err);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- what follows ---- */

/* Returns it. */
static int64_t say_context(composer *self, int64_t most) {
    int64_t context = LEAST_CONTEXT;
    while (context < self->longest) context *= 2;
    context = least(context, most);
    if (self->longest >= most)
        weft_draft_set_number(
            self->draft, "data", "context", (double)context,
            "Places of a row. Documents are longer and become windows; the model has %lld places, and "
            "twice as many take more than twice the time.",
            (long long)self->max_context);
    else
        weft_draft_set_number(self->draft, "data", "context", (double)context,
                              "Places of a row: 95 of 100 documents have %lld tokens or fewer, and several share a "
                              "row; the model has %lld places.",
                              (long long)self->longest, (long long)self->max_context);
    return context;
}

/* Returns whether anything is kept. */
static bool say_validation(composer *self, uint64_t documents) {
    char all[WEFT_UNIT_SIZE];
    (void)weft_unit_count(all, (int64_t)documents);
    if (documents >= 10000)
        weft_draft_set(self->draft, "data", "validation", "500", "500 of %s documents are kept for evaluation.", all);
    else if (documents >= 20)
        weft_draft_set(self->draft, "data", "validation", "0.05",
                       "One of twenty documents, of %s, is kept for evaluation.", all);
    else if (documents >= 4)
        weft_draft_set(self->draft, "data", "validation", "1", "One of %s documents is kept for evaluation.", all);
    else
        weft_draft_set(self->draft, "data", "validation", "none",
                       "Too few documents to keep one for evaluation: a file of others may stand here.");
    return documents >= 4;
}

static int64_t epochs_for(uint64_t targets) {
    return targets < 2000000 ? 3 : targets < 20000000 ? 2 : 1;
}

/* rows: about so many there will be. */
static void say_batch(composer *self, int64_t rows) {
    self->global_batch = ROWS_OF_A_STEP;
    while (self->global_batch > LEAST_ROWS && rows / self->global_batch < STEPS_OF_AN_EPOCH) self->global_batch /= 2;
    if (rows < LEAST_ROWS) self->global_batch = 1;
    weft_draft_set_number(self->draft, "train", "global_batch", (double)self->global_batch,
                          "Rows of an optimizer step: %lld, or fewer where an epoch would have less than %d steps.",
                          (long long)ROWS_OF_A_STEP, (int)STEPS_OF_AN_EPOCH);
    weft_draft_set_number(self->draft, "train", "micro_batch", (double)self->global_batch,
                          "Rows that go through the model at once: all of a step fit.");
}

static void say_precision(composer *self, const weft_device_info *device) {
    const bool is_half = self->dtype == WEFT_BF16 && device->has_bf16;
    const char *why = "The files are fp32.";
    if (self->wish->fresh) why = "Weights that are drawn anew are fp32.";
    else if (is_half) why = "The files are bf16, and the processor multiplies it.";
    else if (self->dtype == WEFT_F16) why = "The files are fp16, which fp32 holds exactly.";
    else if (self->dtype == WEFT_BF16) why = "The files are bf16, which this processor does not multiply by itself.";
    weft_draft_set(self->draft, "train", "precision", is_half ? "bf16" : "fp32", "%s", why);
}

/* What is packed is never trained. */
static void say_adapter(composer *self) {
    if (self->packed == 0 || self->wish->adapter != NULL) return;
    weft_draft_set(self->draft, "adapter", "plugin", "lora",
                   "The files are packed in %s, which stays as it is: updates of low rank learn beside it. weft merge "
                   "makes one model of both.",
                   weft_dtype_name(self->packed));
}

/* Larger models learn at smaller rates. */
static void say_rate(composer *self) {
    const int64_t n = self->parameters;
    char count[WEFT_UNIT_SIZE];
    const char *lr = n < 10000000 ? "1e-3" : n < 100000000 ? "3e-4" : n < 1000000000 ? "1e-4" : "2e-5";
    if (self->packed != 0 || self->wish->adapter != NULL)
        weft_draft_set(
            self->draft, "optimizer", "lr", "2e-4",
            "Usual for adapters as updates of low rank, whatever the model's size. Halve it where the loss jumps.");
    else
        weft_draft_set(
            self->draft, "optimizer", "lr", lr,
            "Usual for %s parameters: 1e-3 below 10 million, 3e-4 below 100 million, 1e-4 below a billion, 2e-5 "
            "from there on. Halve it where the loss jumps.",
            weft_unit_count(count, n));
}

static void say_method(composer *self) {
    weft_draft_set(self->draft, "train", "clip", "1.0",
                   "A step's gradient is no longer than that: one odd row does no harm.");
    weft_draft_set(self->draft, "train", "schedule", "cosine", "The rate falls to zero over the run.");
    weft_draft_set(self->draft, "train", "warmup", "0.05", "It rises over the first twentieth of the steps.");
    weft_draft_set(self->draft, "optimizer", "plugin", "adamw",
                   "Two moments for each number that is trained: it takes rates that suit nearly everything.");
    say_rate(self);
    weft_draft_set(self->draft, "optimizer", "weight_decay", "0.01", "A little, as usual for fine-tuning.");
    weft_draft_set(self->draft, "device", "plugin", "cpu", "All processors that this process may use.");
}

static void say_cadence(composer *self, bool evaluates) {
    if (evaluates)
        weft_draft_set(self->draft, "eval", "every", "10%", "Ten times in the run, at its start and at its end.");
    weft_draft_set(self->draft, "checkpoint", "every", "20%",
                   "What is lost is a fifth of the run at most; --resume goes on from the newest.");
    weft_draft_set(self->draft, "checkpoint", "keep", "2",
                   evaluates ? "And the best one stays, too." : "The newest two.");
}

/* ---- what fits ---- */

static const char *reason_of(const char *key) {
    if (strcmp(key, "micro_batch") == 0)
        return "Rows that go through the model at once: the most that fit, tried by planning; results hardly depend on "
               "it.";
    if (strcmp(key, "activation_checkpointing") == 0)
        return "Without it a step does not fit: less is kept, more is computed, and the bits are the same.";
    if (strcmp(key, "precision") == 0) return "Half the bytes for products and activations: else it does not fit.";
    return "What is trained: the last layers. All of them, with their gradients and moments, do not fit.";
}

/* "train.micro_batch=2" */
static void take_key(composer *self, const char *text) {
    char section[24] = "", key[40] = "", value[64] = "";
    if (sscanf(text, "%23[^.].%39[^=]=%63s", section, key, value) == 3)
        weft_draft_set(self->draft, section, key, value, "%s", reason_of(key));
}

static weft_status refuse_size(const composer *self, weft_error *err) {
    char need[WEFT_UNIT_SIZE], room[WEFT_UNIT_SIZE];
    return weft_error_set(err, WEFT_E_USER,
                          "%s does not fit: %s are planned, and %s has room for %s; nothing that was tried on one rank "
                          "is enough. Choose a smaller model, or say with --fit what another machine's device has",
                          self->wish->model, weft_unit_bytes(need, self->fit.need.bytes.total),
                          weft_available_memory_owner(&self->fit.room), weft_unit_bytes(room, self->fit.room.bytes));
}

/* The mildest change that needs no other machine. */
static weft_status make_it_fit(composer *self, const weft_session *session, char **overrides, weft_error *err) {
    weft_fit_question question = {.session = session,
                                  .overrides = (const char *const *)overrides,
                                  .n_overrides = (size_t)self->draft->n};
    const weft_fit_change *change = NULL;
    weft_status status = WEFT_OK;
    if (self->wish->room > 0) weft_available_memory_describe(&question.room, self->wish->room);
    else weft_available_memory_find(&question.room, &session->engine->device_info);
    if (question.room.free >= 0) question.room.bytes = least(question.room.bytes, question.room.free);
    question.room.bytes = question.room.bytes / 100 * PERCENT_OF_ROOM;
    status = weft_fit_check(&self->fit, &question, NULL, err);
    if (status != WEFT_OK || self->fit.fits) return status;
    for (int32_t i = 0; i < self->fit.changes.n && change == NULL; i++)
        if (!self->fit.changes.fitting[i].grows) change = &self->fit.changes.fitting[i];
    if (change == NULL) return refuse_size(self, err);
    for (int32_t i = 0; i < change->n_keys; i++) take_key(self, change->keys[i]);
    self->fit.need = change->need;
    return WEFT_OK;
}

/* ---- both ways through the data ---- */

/* Adds the keys to [data] ignore that the error names: those that instruct does not use, it has the whole list, or the
 * one that the template does not read. False: the error is another one, or names nothing new. */
static bool ignore_unused(composer *self, const weft_error *err) {
    static const char fix[] = "Fix: [data] ignore = ", unread[] = "the template does not read the key \"";
    const char *list = strstr(err->text, fix), *key = strstr(err->text, unread);
    char all[WEFT_DRAFT_TEXT + sizeof err->text] = "";
    if (list != NULL) (void)snprintf(all, sizeof all, "%s", list + strlen(fix));
    else if (key != NULL)
        (void)snprintf(all, sizeof all, "%s%s%.*s", self->ignored, self->ignored[0] != '\0' ? ", " : "",
                       (int)strcspn(key + strlen(unread), "\""), key + strlen(unread));
    if (strlen(all) <= strlen(self->ignored) || strlen(all) >= sizeof self->ignored) return false;
    memcpy(self->ignored, all, strlen(all) + 1);
    weft_draft_set(self->draft, "data", "ignore", all,
                   "Keys of the records and messages that training does not use. A key that is neither used nor listed "
                   "here is an error.");
    return true;
}

/* With rows as long as they may be: how long documents are, and what follows from their number. */
static weft_status read_lengths(composer *self, bool *evaluates, weft_error *err) {
    const int64_t most = least(self->max_context, MOST_CONTEXT);
    char **overrides = NULL;
    weft_session *session = NULL;
    weft_status status = WEFT_OK;
    weft_draft_set_number(self->draft, "data", "context", (double)most, "%s", "");
    weft_draft_set(self->draft, "train", "steps", "1", "%s", "");
    do {
        weft_draft_free_overrides(overrides);
        overrides = weft_draft_overrides(self->draft);
        status = overrides == NULL ? no_memory(err) : open_session(self, &session, overrides, err);
    } while (status != WEFT_OK && ignore_unused(self, err));
    if (status == WEFT_OK) status = weft_lengths_most(&self->longest, session, err);
    weft_draft_free_overrides(overrides);
    if (status == WEFT_OK) {
        const int64_t context = say_context(self, most);
        say_batch(self, (int64_t)session->all_info.targets / context + 1);
        *evaluates = say_validation(self, session->all_info.documents);
        say_precision(self, &session->engine->device_info);
    }
    weft_session_close(session);
    return status;
}

/* What follows from the rows that there are then. */
static void say_steps(composer *self, char *told, size_t size, const weft_session *session) {
    const int64_t epochs = epochs_for(session->train_info.targets), rows = (int64_t)session->train_info.rows;
    const int64_t steps = (epochs * rows + self->global_batch - 1) / self->global_batch;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE];
    weft_draft_set_number(self->draft, "train", "steps", (double)steps,
                          "%s over %s rows with %s targets: three below two million targets, two below twenty million.",
                          epochs == 3   ? "Three passes"
                          : epochs == 2 ? "Two passes"
                                        : "One pass",
                          weft_unit_count(a, rows), weft_unit_count(b, (int64_t)session->train_info.targets));
    (void)snprintf(told, size, "%s in %s of %lld places, %s; %s planned",
                   weft_unit_counted(a, (int64_t)session->train_info.documents, "document"),
                   weft_unit_counted(b, rows, "row"),
                   (long long)session->data_info.lengths[session->data_info.n_lengths - 1],
                   weft_unit_counted(c, steps, "step"), weft_unit_bytes(d, self->fit.need.bytes.total));
}

/* As the run will be: rows are counted, and what does not fit is made smaller. */
static weft_status read_rows(composer *self, char *told, size_t size, weft_error *err) {
    char **overrides = weft_draft_overrides(self->draft);
    weft_session *session = NULL;
    weft_status status = overrides == NULL ? no_memory(err) : open_session(self, &session, overrides, err);
    if (status == WEFT_OK) status = make_it_fit(self, session, overrides, err);
    if (status == WEFT_OK) say_steps(self, told, size, session);
    weft_session_close(session);
    weft_draft_free_overrides(overrides);
    return status;
}

/* What is read twice is told once. */
static weft_status read_quietly(composer *self, char *told, size_t size, weft_error *err) {
    const int32_t level = weft_services_log_level(WEFT_LOG_ERROR);
    const weft_status status = read_rows(self, told, size, err);
    (void)weft_services_log_level(level);
    return status;
}

weft_status weft_init_compose(weft_draft *out, char *told, size_t size, const weft_init_wish *wish, weft_error *err) {
    composer self = {.draft = out, .wish = wish};
    bool evaluates = false;
    weft_status status = weft_peek_file(&self.peek, wish->data, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    say_model(&self);
    status = ask_model(&self, err);
    if (status != WEFT_OK) return status;
    say_adapter(&self);
    say_data(&self);
    status = read_lengths(&self, &evaluates, err);
    if (status != WEFT_OK) return status;
    say_method(&self);
    say_cadence(&self, evaluates);
    return read_quietly(&self, told, size, err);
}
