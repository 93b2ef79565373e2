/* host/report/bar_line.c: see bar_line.h. */
#include "report/bar_line.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 96, BAR_MOST = 40, BAR_LEAST = 5 };
static const double most_seconds = 1e9; /* thirty years: the longest displayed time */

/* Text before and after the bar, in one of the forms below. */
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

/* Writes one of the forms, the widest first; false: past the last. */
static bool write_form(words *out, const weft_bar_line *line, int form) {
    switch (form) {
    case 0: write_long(out, line); return true;
    case 1: write_short(out, line, false, "loss "); return true;
    case 2: write_short(out, line, false, ""); return true;
    case 3: write_short(out, line, true, ""); return true;
    default: return false;
    }
}

static void append_repeated(char *out, const char *sign, int n) {
    for (int i = 0; i < n; i++) (void)strcat(out, sign);
}

/* Draws the completed part, one partial cell, and the rest. */
static void append_bar(char *out, const weft_bar_line *line, int places, const weft_terminal *terminal) {
    const double share = line->steps > 0 ? (double)line->step / (double)line->steps : 1.0;
    const int done = share >= 1.0 ? places : (int)(share * places);
    (void)strcat(out, terminal->colour ? "\033[36m" : "");
    append_repeated(out, terminal->utf8 ? "\u2501" : "=", done);
    (void)strcat(out, terminal->colour ? "\033[2;39m" : "");
    append_repeated(out, terminal->utf8 ? "\u2500" : ".", places - done);
    (void)strcat(out, terminal->colour ? "\033[0m" : "");
}

void weft_bar_line_write(char out[WEFT_BAR_LINE_SIZE], const weft_bar_line *line, const weft_terminal *terminal) {
    const int width = terminal->width > 1 ? terminal->width - 1 : 1;
    words text;
    out[0] = '\0';
    for (int form = 0; write_form(&text, line, form); form++) {
        const int room = width - (int)strlen(text.before) - (int)strlen(text.behind) - 2;
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
