/* host/tools/report/page_sections.c: what stands at a page's top, and its tables of several runs. */
#include "tools/report/page_sections.h"

#include "base/units.h"
#include "tools/common/html.h"

#include <math.h>

/* ---- tiles ---- */

static void print_loss_tiles(const weft_digest *d, FILE *to) {
    char value[64], about[96];
    if (!isnan(d->last_loss)) {
        (void)snprintf(value, sizeof value, "%.4f", d->last_loss);
        (void)snprintf(about, sizeof about, "training loss at the end, from %.4f", d->first_loss);
        weft_html_tile(to, value, about);
    }
    if (!isnan(d->best_loss)) {
        (void)snprintf(value, sizeof value, "%.4f", d->best_loss);
        (void)snprintf(about, sizeof about, "best evaluation loss, at step %.0f", d->best_step);
        weft_html_tile(to, value, about);
    }
    if (!isnan(d->similarity)) {
        (void)snprintf(value, sizeof value, "%.4g", d->similarity);
        weft_html_tile(to, value, "similarity: 1 less the cosine of hidden states before and after");
    }
}

void weft_section_tiles(const weft_digest *d, FILE *to) {
    char value[64], about[96], a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fputs("<div class=tiles>\n", to);
    print_loss_tiles(d, to);
    if (!isnan(d->speed)) {
        (void)snprintf(about, sizeof about, "tokens a second, %s a step", weft_unit_seconds(b, d->step_seconds));
        weft_html_tile(to, weft_unit_count(a, (int64_t)d->speed), about);
    }
    if (!isnan(d->seconds)) {
        (void)snprintf(about, sizeof about, "in all, %.0f %% of it computing",
                       100.0 * d->times[WEFT_TIME_COMPUTE] / d->seconds);
        weft_html_tile(to, weft_unit_seconds(a, d->seconds), about);
    }
    if (!isnan(d->planned)) {
        (void)snprintf(value, sizeof value, "%s", weft_unit_bytes(a, (int64_t)d->planned));
        (void)snprintf(about, sizeof about, "planned%s%s%s", d->ranks > 1 ? " on the fullest rank" : "",
                       isnan(d->resident) ? "" : "; the process: ",
                       isnan(d->resident) ? "" : weft_unit_bytes(b, (int64_t)d->resident));
        weft_html_tile(to, value, about);
    }
    (void)fputs("</div>\n", to);
}

void weft_section_notes(const weft_comparison *runs, FILE *to) {
    for (size_t i = 0; i < runs->n; i++)
        for (int32_t n = 0; n < runs->runs[i].n_notes; n++) {
            (void)fputs("<p class=note>", to);
            if (runs->n > 1) weft_html_text(to, runs->names[i]);
            if (runs->n > 1) (void)fputs(": ", to);
            weft_html_text(to, runs->runs[i].notes[n]);
            (void)fputs("</p>\n", to);
        }
}

/* ---- tables ---- */

/* The head's cells, but for the first, have the colour of their run. */
static void print_head_row(const weft_sheet *sheet, FILE *to) {
    (void)fputs("<tr>", to);
    for (size_t column = 0; column < sheet->columns; column++) {
        (void)fprintf(to, "<th%s>", column == 0 ? "" : " class=n");
        if (column > 0) (void)fprintf(to, "<i class=k%zu></i>", (column - 1) % WEFT_HTML_COLOURS);
        weft_html_text(to, column == 0 ? "" : weft_sheet_at(sheet, 0, column));
        (void)fputs("</th>", to);
    }
    (void)fputs("</tr>\n", to);
}

static void print_table(const weft_sheet *sheet, FILE *to) {
    (void)fputs("<div class=\"card scroll\"><table>\n", to);
    print_head_row(sheet, to);
    for (size_t row = 1; row < weft_sheet_rows(sheet); row++) {
        (void)fputs("<tr>", to);
        for (size_t column = 0; column < sheet->columns; column++) {
            (void)fputs(column == 0 ? "<td class=key>" : "<td class=n>", to);
            weft_html_text(to, weft_sheet_at(sheet, row, column));
            (void)fputs("</td>", to);
        }
        (void)fputs("</tr>\n", to);
    }
    (void)fputs("</table></div>\n", to);
}

void weft_section_scaling(const weft_comparison *runs, FILE *to) {
    weft_sheet sheet;
    weft_comparison_scaling(runs, &sheet, true);
    if (weft_sheet_whole(&sheet)) {
        (void)fputs("<h2>What they took and came to <small>factors against the first</small></h2>\n", to);
        print_table(&sheet, to);
    }
    weft_sheet_free(&sheet);
}

void weft_section_differences(const weft_comparison *runs, FILE *to) {
    weft_sheet sheet;
    weft_comparison_differences(runs, &sheet);
    if (weft_sheet_whole(&sheet)) {
        (void)fputs("<h2>What differs in their configurations</h2>\n", to);
        if (weft_sheet_rows(&sheet) > 1) print_table(&sheet, to);
        else (void)fputs("<p class=soft>Nothing but where their results lie.</p>\n", to);
    }
    weft_sheet_free(&sheet);
}
