/* host/command/cmd_eval.c: `weft eval`. */
#include "cli/flags.h"

#include "base/units.h"
#include "run/engine.h"
#include "train/progress.h"
#include "run/session.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static const weft_flag flags[] = {
    {"adapter", "NAME|DIR", false, "Use this adapter: a directory, or a name in [adapter]."},
    {"json", NULL, false, "Print an object instead of text."},
    WEFT_FIT_FLAG,
    WEFT_NO_FIT_FLAG,
    {NULL, NULL, false, NULL},
};

static void print_evaluation_json(const weft_evaluation *e) {
    json_t *object =
        json_pack("{s:f, s:I, s:f}", "loss", e->loss, "tokens", (json_int_t)e->tokens, "seconds", e->seconds);
    if (object == NULL) return;
    (void)json_object_set_new(object, "perplexity", isfinite(e->perplexity) ? json_real(e->perplexity) : json_null());
    (void)json_dumpf(object, stdout, JSON_REAL_PRECISION(17));
    (void)putchar('\n');
    json_decref(object);
}

static void print_lines(const weft_evaluation *e, const weft_session *session, int32_t split) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    const weft_split_info *info = split == WEFT_SPLIT_ALL ? &session->all_info : &session->validation_info;
    (void)printf("model        %s\n", session->run->settings.model.path);
    if (session->run->settings.adapter_from[0] != '\0')
        (void)printf("adapter      %s\n", session->run->settings.adapter_from);
    (void)printf("measured on  %s: %s, %s in %s\n",
                 split == WEFT_SPLIT_ALL ? "all of [data] path" : "the validation documents",
                 weft_unit_counted(a, (int64_t)info->documents, "document"),
                 weft_unit_counted(b, e->tokens, "target token"),
                 weft_unit_seconds((char[WEFT_UNIT_SIZE]){0}, e->seconds));
    (void)printf("loss         %.6f (mean over target tokens)\n", e->loss);
    (void)printf("perplexity   %.4f\n", e->perplexity);
}

/* ---- progress on a terminal ---- */

typedef struct watcher {
    double begin, shown;
    bool open;
} watcher;

static void show_part(void *context, uint64_t done, uint64_t rows, double loss, int64_t targets) {
    watcher *self = context;
    const double now = weft_clock_seconds(), took = now - self->begin;
    const weft_terminal terminal = weft_terminal_of(STDOUT_FILENO);
    weft_bar_line line = {.step = (int64_t)done, .steps = (int64_t)rows, .loss = loss, .what = "seq"};
    char text[WEFT_BAR_LINE_SIZE];
    if (now - self->shown < 0.1 || took <= 0.0) return;
    line.rate = (double)targets / took;
    line.left = took * (double)(rows - done) / (double)done;
    weft_bar_line_write(text, &line, &terminal);
    (void)printf("\r%s\033[K", text);
    (void)fflush(stdout);
    self->shown = now;
    self->open = true;
}

static weft_status evaluate(weft_session *session, weft_evaluation *out, int32_t split, bool json, weft_error *err) {
    watcher self = {.begin = weft_clock_seconds()};
    weft_status status = WEFT_OK;
    session->watch_context = &self;
    if (!json && weft_terminal_of(STDOUT_FILENO).renews) session->watch = show_part;
    status = weft_session_evaluate(session, out, split, err);
    if (self.open) (void)fputs("\r\033[K", stdout); /* the result replaces it */
    (void)fflush(stdout);
    return status;
}

static weft_exit run_eval(const weft_args *args, weft_error *err) {
    size_t n = 0;
    const char *const *overrides = weft_args_overrides(args, &n);
    weft_session *session = NULL;
    weft_evaluation evaluation = {0};
    int32_t split = WEFT_SPLIT_ALL;
    int64_t room = 0;
    weft_status status = WEFT_OK;
    if (!weft_command_room(args, &room, err)) return WEFT_EXIT_USAGE;
    status = weft_session_open(&session, weft_args_config(args), overrides, n, WEFT_SESSION_EVALUATE, NULL, err);
    if (status == WEFT_OK && session->validation_info.rows > 0) split = WEFT_SPLIT_VALIDATION;
    if (status == WEFT_OK) status = weft_command_check_room(args, session, room, err);
    if (status == WEFT_OK) status = weft_session_start(session, err);
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    if (status == WEFT_OK) status = evaluate(session, &evaluation, split, weft_args_has(args, "json"), err);
    if (status == WEFT_OK && weft_args_has(args, "json")) print_evaluation_json(&evaluation);
    else if (status == WEFT_OK) print_lines(&evaluation, session, split);
    weft_session_close(session);
    return weft_exit_from(status);
}

const weft_command weft_command_eval = {
    .name = "eval",
    .usage = "run.ini|DIR [section.key=value ...]",
    .takes = WEFT_TAKES_DIRECTORY,
    .flags = flags,
    .more = "Evaluates the validation documents of [data], or all of [data] path if validation = none. DIR is the "
            "directory of a model, which needs data.path=FILE, or of a run ([run] out): its model/ on its own "
            "validation documents.",
    .examples = "  weft eval runs/one\n"
                "  weft eval /models/TinyLlama data.path=story.txt\n",
    .run = run_eval,
};
