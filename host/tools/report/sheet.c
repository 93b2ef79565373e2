/* host/tools/report/sheet.c: see sheet.h. */
#include "tools/report/sheet.h"

#include "base/words.h"

#include <stdlib.h>

void weft_sheet_begin(weft_sheet *self, size_t columns) {
    memset(self, 0, sizeof *self);
    self->columns = columns;
}

/* A cell is one line without control characters: names of directories and texts of records come from outside. */
static void make_line(char *text) {
    weft_words_tame(text);
    for (; *text != '\0'; text++)
        if (*text == '\n' || *text == '\t') *text = ' ';
}

void weft_sheet_put(weft_sheet *self, const char *format, ...) {
    va_list args;
    char *text = NULL;
    char **cells = realloc(self->cells, (self->n + 1) * sizeof *cells);
    if (cells == NULL) {
        self->failed = true;
        return;
    }
    self->cells = cells;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    if (text == NULL) self->failed = true;
    else make_line(text);
    self->cells[self->n++] = text;
}

void weft_sheet_free(weft_sheet *self) {
    for (size_t i = 0; i < self->n; i++) free(self->cells[i]);
    free(self->cells);
    memset(self, 0, sizeof *self);
}

bool weft_sheet_whole(const weft_sheet *self) {
    return !self->failed && self->n % self->columns == 0;
}

size_t weft_sheet_rows(const weft_sheet *self) {
    return self->n / self->columns;
}

const char *weft_sheet_at(const weft_sheet *self, size_t row, size_t column) {
    const char *text = self->cells[row * self->columns + column];
    return text == NULL ? "" : text;
}

/* ---- a terminal ---- */

/* Places on a terminal: bytes that begin a character of UTF-8. */
static size_t places(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static size_t column_width(const weft_sheet *self, size_t column) {
    size_t most = 0;
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        const size_t n = places(weft_sheet_at(self, row, column));
        if (n > most) most = n;
    }
    return most;
}

/* The text in so many places, cut with ".." where it needs more. */
static void print_cell(const char *text, size_t width, bool left, FILE *to) {
    const size_t n = places(text);
    size_t at = 0, shown = 0;
    if (n <= width) {
        if (!left) (void)fprintf(to, "%*s", (int)(width - n), "");
        (void)fprintf(to, "%s", text);
        if (left) (void)fprintf(to, "%*s", (int)(width - n), "");
        return;
    }
    while (shown + 2 < width && text[at] != '\0')
        for (shown++, at++; ((unsigned char)text[at] & 0xc0) == 0x80;) at++;
    (void)fprintf(to, "%.*s%.*s", (int)at, text, (int)(width < 2 ? width : 2), "..");
}

static void print_columns(const weft_sheet *self, FILE *to, const size_t *widths, size_t first, size_t last) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        print_cell(weft_sheet_at(self, row, 0), widths[0], true, to);
        for (size_t column = first; column < last; column++) {
            (void)fputs("  ", to);
            print_cell(weft_sheet_at(self, row, column), widths[column], false, to);
        }
        (void)fputc('\n', to);
    }
}

/* Each at most half of a line (the first a third), so that two always find room. */
static void choose_widths(const weft_sheet *self, size_t *widths, size_t width) {
    for (size_t column = 0; column < self->columns; column++) {
        const size_t most = width == 0 ? (size_t)-1 : column == 0 ? width / 2 - 2 : width - width / 2;
        widths[column] = column_width(self, column);
        if (widths[column] > most) widths[column] = most;
    }
}

void weft_sheet_print(const weft_sheet *self, FILE *to, size_t width) {
    size_t *widths = calloc(self->columns, sizeof *widths);
    size_t first = 1, last = 1;
    if (widths == NULL) return;
    choose_widths(self, widths, width);
    while (first < self->columns) {
        size_t taken = widths[0];
        for (last = first; last < self->columns; last++) {
            taken += 2 + widths[last];
            if (width > 0 && last > first && taken > width) break;
        }
        if (first > 1) (void)fputc('\n', to);
        print_columns(self, to, widths, first, last);
        first = last;
    }
    free(widths);
}

/* ---- Markdown ---- */

static void print_markdown_cell(const char *text, FILE *to) {
    (void)fputc(' ', to);
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '\\' || *text == '`' || *text == '*' || *text == '_' || *text == '<')
            (void)fputc('\\', to);
        (void)fputc(*text == '\n' ? ' ' : *text, to);
    }
    (void)fputs(" |", to);
}

void weft_sheet_print_markdown(const weft_sheet *self, FILE *to) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        (void)fputc('|', to);
        for (size_t column = 0; column < self->columns; column++)
            print_markdown_cell(weft_sheet_at(self, row, column), to);
        (void)fputc('\n', to);
        if (row > 0) continue;
        (void)fputc('|', to);
        for (size_t column = 0; column < self->columns; column++) (void)fputs(column == 0 ? "---|" : "---:|", to);
        (void)fputc('\n', to);
    }
}

/* ---- CSV ---- */

/* A spreadsheet takes such a cell for a formula. A number is none. */
static bool is_formula(const char *text) {
    char *end = NULL;
    if (strchr("=+-@", text[0]) == NULL || text[0] == '\0') return false;
    (void)strtod(text, &end);
    return *end != '\0' || end == text;
}

static void print_csv_cell(const char *text, FILE *to) {
    const bool formula = is_formula(text);
    if (!formula && strpbrk(text, ",\"") == NULL) {
        (void)fputs(text, to);
        return;
    }
    (void)fputs(formula ? "\"'" : "\"", to);
    for (; *text != '\0'; text++) {
        if (*text == '"') (void)fputc('"', to);
        (void)fputc(*text, to);
    }
    (void)fputc('"', to);
}

void weft_sheet_print_csv(const weft_sheet *self, FILE *to) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++)
        for (size_t column = 0; column < self->columns; column++) {
            print_csv_cell(weft_sheet_at(self, row, column), to);
            (void)fputc(column + 1 < self->columns ? ',' : '\n', to);
        }
}
