/* host/tools/report/sheet.h: a table of texts, for a terminal, as Markdown or as CSV.
 *
 *     weft_sheet sheet;
 *     weft_sheet_begin(&sheet, 3);                 columns
 *     weft_sheet_put(&sheet, "%s", "one");         cell by cell, the first row being the head
 *     weft_sheet_print(&sheet, stdout, width);
 *     weft_sheet_free(&sheet);
 *
 * Where memory runs out cells are missing; weft_sheet_whole tells. */
#ifndef WEFT_HOST_TOOLS_REPORT_SHEET_H
#define WEFT_HOST_TOOLS_REPORT_SHEET_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>

typedef struct weft_sheet {
    char **cells;
    size_t n, columns;
    bool failed;
} weft_sheet;

void weft_sheet_begin(weft_sheet *self, size_t columns);
void weft_sheet_put(weft_sheet *self, const char *format, ...) WEFT_PRINTF(2, 3);
void weft_sheet_free(weft_sheet *self);
bool weft_sheet_whole(const weft_sheet *self);

size_t weft_sheet_rows(const weft_sheet *self); /* with the head */
const char *weft_sheet_at(const weft_sheet *self, size_t row, size_t column);

/* Aligned; the first column to the left, the others to the right. No line is wider than `width` (0: any width): columns
 * that find no room come below, under a head of their own, and a text that is wider than a line is cut with "..". */
void weft_sheet_print(const weft_sheet *self, FILE *to, size_t width);
void weft_sheet_print_markdown(const weft_sheet *self, FILE *to);
void weft_sheet_print_csv(const weft_sheet *self, FILE *to); /* RFC 4180, lines end with \n */

#endif
