/* host/tools/report/page.c: see page.h. The page from its top to its end; page_sections.h has what stands in it. */
#include "tools/report/page.h"

#include "base/file.h"
#include "base/units.h"
#include "base/words.h"
#include "tools/common/html.h"
#include "tools/report/page_sections.h"

#include <math.h>
#include <time.h>

static void print_names(const weft_comparison *self, FILE *to) {
    for (size_t i = 0; i < self->n; i++) {
        if (i > 0) (void)fputs(", ", to);
        weft_html_text(to, self->names[i]);
    }
}

static void print_head(const weft_comparison *self, FILE *to) {
    char title[512] = "";
    for (size_t i = 0; i < self->n; i++)
        weft_words_append(title, sizeof title, "%s%s", i > 0 ? ", " : "", self->names[i]);
    weft_html_begin(to, title);
}

/* "llama, 973,184 parameters; fsdp full on 3 ranks, fp32; step 40 of 40" */
static void print_subtitle(const weft_comparison *self, FILE *to) {
    const weft_past_run *run = &self->runs[0];
    const weft_digest *digest = &self->digests[0];
    const json_t *start = weft_past_start(run);
    const double parameters = weft_past_number(start, "model", "parameters");
    const char *model = weft_past_text(json_object_get(start, "run"), "plugins", "model");
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fputs("<p class=soft>", to);
    if (start != NULL && !isnan(parameters)) {
        weft_html_text(to, model);
        (void)fprintf(to, ", %s parameters &middot; ", weft_unit_count(a, (int64_t)parameters));
        weft_html_text(to, digest->strategy);
        (void)fprintf(to, " on %s, %s &middot; ", weft_unit_counted(b, (int64_t)digest->ranks, "rank"),
                      digest->precision);
    }
    if (digest->finished) (void)fprintf(to, "finished after %.0f steps", digest->steps);
    else if (isnan(digest->all_steps)) (void)fprintf(to, "step %.0f", digest->steps);
    else (void)fprintf(to, "step %.0f of %.0f: under way, or stopped", digest->steps, digest->all_steps);
    if (!isnan(digest->epochs)) (void)fprintf(to, ", %.3g epochs", digest->epochs);
    (void)fputs("</p>\n", to);
}

static void print_footer(const weft_comparison *self, FILE *to) {
    double last = 0.0;
    char text[64];
    time_t at = 0;
    struct tm parts;
    for (size_t i = 0; i < self->n; i++) last = fmax(last, self->runs[i].last_time);
    at = (time_t)last;
    if (at == 0 || localtime_r(&at, &parts) == NULL || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &parts) == 0)
        (void)snprintf(text, sizeof text, "at a time that is not known");
    (void)fprintf(to,
                  "<footer>Written by <code>weft report</code> of Weft %s. The last record is of %s.</footer>\n"
                  "</main></body></html>\n",
                  WEFT_VERSION, text);
}

static void print_one(const weft_comparison *self, FILE *to) {
    (void)fputs("<p class=mark>Weft &middot; run</p>\n<h1>", to);
    print_names(self, to);
    (void)fputs("</h1>\n", to);
    print_subtitle(self, to);
    weft_section_tiles(&self->digests[0], to);
    weft_section_notes(self, to);
    weft_section_charts(self, to);
    weft_section_memory(self, to);
    weft_section_time(self, to);
    weft_section_ranks(&self->runs[0], to);
    weft_section_saves(&self->runs[0], to);
    weft_section_config(&self->runs[0], to);
    weft_section_starts(&self->runs[0], to);
}

static void print_several(const weft_comparison *self, FILE *to) {
    (void)fprintf(to, "<p class=mark>Weft &middot; %zu runs side by side</p>\n<h1>", self->n);
    print_names(self, to);
    (void)fputs("</h1>\n", to);
    weft_section_notes(self, to);
    weft_section_scaling(self, to);
    weft_section_differences(self, to);
    weft_section_charts(self, to);
    weft_section_memory(self, to);
    weft_section_time(self, to);
}

weft_status weft_page_save(const weft_comparison *runs, const char *path, weft_error *err) {
    weft_file file;
    FILE *to = weft_file_begin(&file, path, err);
    if (to == NULL) return WEFT_E_SYSTEM;
    print_head(runs, to);
    if (runs->n == 1) print_one(runs, to);
    else print_several(runs, to);
    print_footer(runs, to);
    return weft_file_commit(&file, err);
}
