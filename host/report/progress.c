/* host/report/progress.c: see progress.h. */
#include "report/progress.h"

#include "base/clock.h"
#include "base/terminal.h"
#include "base/units.h"
#include "report/bar_line.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

struct weft_progress {
    int64_t steps;
    bool quiet;
    bool live;      /* a rewritten line; else plain lines */
    bool open;      /* the rewritten line has no newline yet */
    double rate;    /* tokens per second, smoothed */
    double seconds; /* per step, smoothed */
    double last_shown;
};

/* Plain logs have about this many lines, and at least one per interval in seconds. */
enum { PLAIN_LINES = 20, PLAIN_SECONDS = 30 };
static const double live_seconds = 0.1;

weft_status weft_progress_create(weft_progress **out, int64_t steps, bool quiet, weft_error *err) {
    weft_progress *progress = calloc(1, sizeof *progress);
    if (progress == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the progress line");
    progress->steps = steps;
    progress->quiet = quiet;
    progress->live = weft_terminal_of(STDOUT_FILENO).renews;
    *out = progress;
    return WEFT_OK;
}

void weft_progress_destroy(weft_progress *progress) {
    if (progress != NULL) weft_progress_end(progress);
    free(progress);
}

void weft_progress_end(weft_progress *progress) {
    if (progress->open) (void)putchar('\n');
    progress->open = false;
    (void)fflush(stdout);
}

/* Removes the rewritten line before a permanent line. */
static void make_room(weft_progress *progress) {
    if (progress->open) (void)fputs("\r\033[K", stdout);
    progress->open = false;
}

static void smooth(weft_progress *progress, const weft_progress_row *row) {
    const double rate = row->seconds > 0.0 ? (double)row->tokens / row->seconds : 0.0;
    const double keep = progress->seconds > 0.0 ? 0.9 : 0.0;
    progress->rate = keep * progress->rate + (1.0 - keep) * rate;
    progress->seconds = keep * progress->seconds + (1.0 - keep) * row->seconds;
}

static bool wanted(const weft_progress *progress, int64_t step, double now) {
    const int64_t stride = progress->steps / PLAIN_LINES > 0 ? progress->steps / PLAIN_LINES : 1;
    if (step == 1 || step == progress->steps) return true;
    if (progress->live) return now - progress->last_shown >= live_seconds;
    return step % stride == 0 || now - progress->last_shown >= PLAIN_SECONDS;
}

static double seconds_left(const weft_progress *progress, int64_t step) {
    return progress->seconds * (double)(progress->steps - step);
}

/* Prints a log line for people and programs: all numbers, independent of the width. */
static void print_plain(const weft_progress *progress, int64_t step, const weft_progress_row *row) {
    char rate[WEFT_UNIT_SIZE], left[WEFT_UNIT_SIZE], total[WEFT_UNIT_SIZE], at[WEFT_UNIT_SIZE];
    char norm[24] = " skipped";
    char rest[WEFT_UNIT_SIZE + 8] = ""; /* empty after the last step */
    (void)weft_unit_count(total, progress->steps);
    (void)weft_unit_count(at, step);
    if (step < progress->steps)
        (void)snprintf(rest, sizeof rest, "  %s left", weft_unit_seconds(left, seconds_left(progress, step)));
    if (isfinite(row->norm)) (void)snprintf(norm, sizeof norm, "%8.3g", row->norm);
    (void)printf("step %*s/%s  loss %7.4f  lr %.2e  grad %s  %8s tok/s%s\n", (int)strlen(total), at, total, row->loss,
                 row->lr, norm, weft_unit_count(rate, (int64_t)progress->rate), rest);
}

static void print_live(const weft_progress *progress, int64_t step, const weft_progress_row *row) {
    const weft_terminal terminal = weft_terminal_of(STDOUT_FILENO); /* its width may have changed */
    const weft_bar_line line = {.step = step,
                                .steps = progress->steps,
                                .loss = row->loss,
                                .rate = progress->rate,
                                .left = seconds_left(progress, step)};
    char text[WEFT_BAR_LINE_SIZE];
    weft_bar_line_write(text, &line, &terminal);
    (void)printf("\r%s\033[K", text);
}

void weft_progress_step(weft_progress *progress, int64_t step, const weft_progress_row *row) {
    const double now = weft_clock_seconds();
    smooth(progress, row);
    if (progress->quiet || !wanted(progress, step, now)) return;
    progress->last_shown = now;
    if (progress->live) print_live(progress, step, row);
    else print_plain(progress, step, row);
    progress->open = progress->live;
    (void)fflush(stdout);
}

void weft_progress_evaluation(weft_progress *progress, int64_t step, double loss, double perplexity) {
    const weft_terminal terminal = weft_terminal_of(STDOUT_FILENO);
    if (progress->quiet) return;
    make_room(progress);
    if (progress->live && terminal.width < 56) (void)printf("eval %lld  loss %.4f\n", (long long)step, loss);
    else (void)printf("eval  after step %lld  loss %.4f  perplexity %.2f\n", (long long)step, loss, perplexity);
    (void)fflush(stdout);
}

void weft_progress_line(weft_progress *progress, const char *format, ...) {
    va_list args;
    if (progress->quiet) return;
    make_room(progress);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout);
}
