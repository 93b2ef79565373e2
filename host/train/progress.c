/* host/train/progress.c: see progress.h. */
#include "train/progress.h"

#include "base/alloc.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 96, BAR_MOST = 40, BAR_LEAST = 5, FORMS = 4 };
static const double most_seconds = 1e9; /* thirty years: the longest displayed time */

/* Text before and after the bar, in one of four forms, the widest first. */
typedef struct words {
    char before[TEXT], behind[TEXT];
} words;

/* "830", "5.1k", "2.3M" */
static void write_short_count(char out[16], double value) {
    if (value < 1e3) (void)snprintf(out, 16, "%.0f", value);
    else if (value < 99950.0) (void)snprintf(out, 16, "%.1fk", value / 1e3);
    else if (value < 1e6) (void)snprintf(out, 16, "%.0fk", value / 1e3);
    else (void)snprintf(out, 16, "%.1fM", value / 1e6);
}

/* "9s", "12m05s", "3h07m", "2d04h" */
static void write_short_time(char out[24], double seconds) {
    const long whole = seconds < most_seconds ? (long)(seconds + 0.5) : (long)most_seconds;
    if (whole < 60) (void)snprintf(out, 24, "%lds", whole);
    else if (whole < 3600) (void)snprintf(out, 24, "%ldm%02lds", whole / 60, whole % 60);
    else if (whole < 86400) (void)snprintf(out, 24, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else (void)snprintf(out, 24, "%ldd%02ldh", whole / 86400, whole / 3600 % 24);
}

/* Formats fields with a constant width, so that the bar does not move. */
static void write_long(words *out, const weft_bar_line *line) {
    char at[WEFT_UNIT_SIZE], total[WEFT_UNIT_SIZE], rate[WEFT_UNIT_SIZE], left[WEFT_UNIT_SIZE + 8] = "";
    (void)snprintf(out->before, TEXT, "%s %*s/%s", line->what != NULL ? line->what : "step",
                   (int)strlen(weft_unit_count(total, line->steps)), weft_unit_count(at, line->step), total);
    if (line->step < line->steps)
        (void)strcat(weft_unit_seconds(left, line->left < most_seconds ? line->left : most_seconds), " left");
    (void)snprintf(out->behind, TEXT, "  loss %.4f  %7s tok/s  %-15s", line->loss,
                   weft_unit_count(rate, (int64_t)line->rate), left);
}

/* Formats the steps, or the completed percentage; `word`: before the loss. */
static void write_short(words *out, const weft_bar_line *line, bool percent, const char *word) {
    char rate[16], left[24] = "", total[24];
    write_short_count(rate, line->rate);
    if (line->step < line->steps) write_short_time(left, line->left);
    (void)snprintf(total, sizeof total, "%lld", (long long)line->steps);
    if (percent) (void)snprintf(out->before, TEXT, "%3lld%%", (long long)(100 * line->step / line->steps));
    else (void)snprintf(out->before, TEXT, "%*lld/%s", (int)strlen(total), (long long)line->step, total);
    (void)snprintf(out->behind, TEXT, line->loss < 100.0 ? " %s%.3f %5s/s %-6s" : " %s%.4g %5s/s %-6s", word,
                   line->loss, rate, left);
}

/* Draws the completed part and the rest. */
static void append_bar(char *out, const weft_bar_line *line, int places, const weft_terminal *terminal) {
    const double share = line->steps > 0 ? (double)line->step / (double)line->steps : 1.0;
    const int done = share >= 1.0 ? places : (int)(share * places);
    (void)strcat(out, terminal->colour ? "\033[36m" : "");
    for (int i = 0; i < done; i++) (void)strcat(out, terminal->utf8 ? "\u2501" : "=");
    (void)strcat(out, terminal->colour ? "\033[2;39m" : "");
    for (int i = done; i < places; i++) (void)strcat(out, terminal->utf8 ? "\u2500" : ".");
    (void)strcat(out, terminal->colour ? "\033[0m" : "");
}

void weft_bar_line_write(char out[WEFT_BAR_LINE_SIZE], const weft_bar_line *line, const weft_terminal *terminal) {
    const int width = terminal->width > 1 ? terminal->width - 1 : 1;
    words text;
    out[0] = '\0';
    for (int form = 0; form < FORMS; form++) {
        int room = 0;
        if (form == 0) write_long(&text, line);
        else write_short(&text, line, form == 3, form == 1 ? "loss " : "");
        room = width - (int)strlen(text.before) - (int)strlen(text.behind) - 2;
        if (room < (form == 0 ? 2 * BAR_LEAST : BAR_LEAST)) continue;
        (void)snprintf(out, WEFT_BAR_LINE_SIZE, "%s  ", text.before);
        append_bar(out, line, room < BAR_MOST ? room : BAR_MOST, terminal);
        (void)strcat(out, text.behind);
        return;
    }
    /* Too narrow for a bar. */
    (void)snprintf(out, WEFT_BAR_LINE_SIZE, "%.*s", width < 2 * TEXT ? width : 2 * TEXT, text.before);
    if ((int)(strlen(text.before) + strlen(text.behind)) <= width) (void)strcat(out, text.behind);
}

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

weft_progress *weft_progress_create(int64_t steps, bool quiet) {
    weft_progress *progress = weft_alloc(1, sizeof *progress);
    progress->steps = steps;
    progress->quiet = quiet;
    progress->live = weft_terminal_of(STDOUT_FILENO).renews;
    return progress;
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

/* Prints a log line for people and programs: all numbers, independent of the width. */
static void print_plain(const weft_progress *progress, int64_t step, const weft_progress_row *row) {
    char rate[WEFT_UNIT_SIZE], left[WEFT_UNIT_SIZE], total[WEFT_UNIT_SIZE], at[WEFT_UNIT_SIZE];
    char norm[24] = " skipped";
    char rest[WEFT_UNIT_SIZE + 8] = ""; /* empty after the last step */
    (void)weft_unit_count(total, progress->steps);
    (void)weft_unit_count(at, step);
    if (step < progress->steps)
        (void)snprintf(rest, sizeof rest, "  %s left",
                       weft_unit_seconds(left, progress->seconds * (double)(progress->steps - step)));
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
                                .left = progress->seconds * (double)(progress->steps - step)};
    char text[WEFT_BAR_LINE_SIZE];
    weft_bar_line_write(text, &line, &terminal);
    (void)printf("\r%s\033[K", text);
}

void weft_progress_step(weft_progress *progress, int64_t step, const weft_progress_row *row) {
    const double now = weft_clock_seconds(), since = now - progress->last_shown;
    const double rate = row->seconds > 0.0 ? (double)row->tokens / row->seconds : 0.0;
    const double keep = progress->seconds > 0.0 ? 0.9 : 0.0;
    const int64_t stride = progress->steps / PLAIN_LINES > 0 ? progress->steps / PLAIN_LINES : 1;
    bool shows = step == 1 || step == progress->steps;
    progress->rate = keep * progress->rate + (1.0 - keep) * rate;
    progress->seconds = keep * progress->seconds + (1.0 - keep) * row->seconds;
    shows = shows || (progress->live ? since >= live_seconds : step % stride == 0 || since >= PLAIN_SECONDS);
    if (progress->quiet || !shows) return;
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
