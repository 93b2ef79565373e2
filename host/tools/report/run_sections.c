/* host/tools/report/run_sections.c: what is told of one run alone: evaluations and saves, its configuration, its
 * starts. */
#include "tools/report/page_sections.h"

#include "base/units.h"
#include "tools/common/html.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>

/* ---- evaluations and saves ---- */

enum { MOST_ROWS = 200 };

/* Of step-N: whether it is still there. */
static bool is_kept(const weft_past_run *run, double step) {
    char path[4096];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%.0f", run->directory, step);
    return stat(path, &about) == 0;
}

static void print_save(const weft_past_run *run, const weft_past_save *save, bool best, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    if (save->is_model) (void)fprintf(to, "<td>result saved in <code>model/</code>");
    else
        (void)fprintf(to, "<td>checkpoint%s%s", best ? ", <b>the best</b>" : "",
                      is_kept(run, save->step) ? "" : ", no longer kept");
    (void)fprintf(to, "</td><td class=n>%s</td></tr>\n", weft_unit_seconds(text, save->took));
}

static void print_evaluation(const weft_past_evaluation *one, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "<td>evaluation loss %.4f", one->loss);
    if (!isnan(one->perplexity)) (void)fprintf(to, ", perplexity %.2f", one->perplexity);
    if (!isnan(one->similarity)) (void)fprintf(to, ", similarity %.4g", one->similarity);
    (void)fprintf(to, "</td><td class=n>%s</td></tr>\n", isnan(one->took) ? "" : weft_unit_seconds(text, one->took));
}

static void print_place(double step, double seconds, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "<tr><td class=n>%.0f</td><td class=n>%s</td>", step,
                  isnan(seconds) ? "" : weft_unit_seconds(text, seconds));
}

/* Both in the order of their steps. */
static void print_happenings(const weft_past_run *run, double best, FILE *to) {
    size_t e = 0, s = 0;
    while ((e < run->n_evaluations || s < run->n_saves) && e + s < MOST_ROWS) {
        const bool save = e == run->n_evaluations ||
                          (s < run->n_saves && run->saves[s].step < run->evaluations[e].step);
        if (save) print_place(run->saves[s].step, run->saves[s].seconds, to);
        else print_place(run->evaluations[e].step, run->evaluations[e].seconds, to);
        if (save) print_save(run, &run->saves[s], run->saves[s].step == best, to);
        else print_evaluation(&run->evaluations[e], to);
        if (save) s++;
        else e++;
    }
}

void weft_section_saves(const weft_past_run *run, FILE *to) {
    weft_digest digest;
    const size_t n = run->n_evaluations + run->n_saves;
    if (n == 0) return;
    weft_digest_make(&digest, run);
    (void)fprintf(to,
                  "<h2>Evaluations and checkpoints <small>%zu of %zu</small></h2>\n"
                  "<div class=\"card scroll\"><table><tr><th class=n>step</th><th class=n>at</th><th></th>"
                  "<th class=n>took</th></tr>\n",
                  n < MOST_ROWS ? n : (size_t)MOST_ROWS, n);
    print_happenings(run, digest.best_step, to);
    (void)fputs("</table></div>\n", to);
}

/* ---- the configuration ---- */

static bool is_default(const json_t *entry) {
    return strcmp(weft_past_text(entry, NULL, "source"), "default") == 0;
}

static void print_key(const weft_past_run *run, const json_t *entry, FILE *to) {
    char value[2048];
    const char *key = weft_past_text(entry, NULL, "key"), *source = "";
    (void)weft_past_config(run, key, value, sizeof value, &source);
    (void)fputs("<tr><td class=key><code>", to);
    weft_html_text(to, key);
    (void)fputs("</code></td><td class=\"value mono\">", to);
    weft_html_text(to, *value == '\0' ? "\"\"" : value);
    (void)fputs("</td><td class=from>", to);
    weft_html_text(to, source);
    (void)fputs(json_is_true(json_object_get(entry, "idle")) ? ", idle</td></tr>\n" : "</td></tr>\n", to);
}

static size_t print_keys(const weft_past_run *run, const json_t *config, bool defaults, FILE *to) {
    size_t n = 0;
    (void)fputs("<table><tr><th>key</th><th>value</th><th>from</th></tr>\n", to);
    for (size_t i = 0; i < json_array_size(config); i++) {
        const json_t *entry = json_array_get(config, i);
        if (is_default(entry) != defaults) continue;
        print_key(run, entry, to);
        n++;
    }
    (void)fputs("</table>\n", to);
    return n;
}

void weft_section_config(const weft_past_run *run, FILE *to) {
    const json_t *config = json_object_get(weft_past_start(run), "config");
    size_t defaults = 0;
    if (!json_is_array(config)) return;
    for (size_t i = 0; i < json_array_size(config); i++) defaults += is_default(json_array_get(config, i));
    (void)fputs("<h2>Configuration <small>what was set, and where</small></h2>\n<div class=\"card scroll\">", to);
    (void)print_keys(run, config, false, to);
    (void)fprintf(to, "<details><summary>%zu keys at their defaults</summary>\n", defaults);
    (void)print_keys(run, config, true, to);
    (void)fputs("</details></div>\n", to);
}

/* ---- starts ---- */

static void print_start(const json_t *start, FILE *to) {
    char text[64] = "";
    struct tm parts;
    const time_t at = (time_t)json_number_value(json_object_get(start, "time"));
    const double ranks = weft_past_number(start, "run", "world");
    if (localtime_r(&at, &parts) != NULL) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    (void)fprintf(to, "<tr><td class=key>%s</td><td>%s step %lld</td><td class=n>%.0f</td><td>", text,
                  json_is_true(json_object_get(start, "resumed")) ? "resumed from" : "began at",
                  (long long)json_integer_value(json_object_get(start, "step")), isnan(ranks) ? 1.0 : ranks);
    weft_html_text(to, weft_past_text(start, NULL, "host"));
    (void)fputs(", ", to);
    weft_html_text(to, weft_past_text(start, "device", "name"));
    (void)fputs(", ", to);
    weft_html_text(to, weft_past_text(start, "device", "backend"));
    (void)fprintf(to, ", %.0f threads</td><td>", weft_past_number(start, "device", "threads"));
    weft_html_text(to, weft_past_text(start, NULL, "weft"));
    (void)fputs("</td></tr>\n", to);
}

void weft_section_starts(const weft_past_run *run, FILE *to) {
    if (json_array_size(run->starts) == 0) return;
    (void)fputs("<h2>Where it ran</h2>\n<div class=\"card scroll\"><table><tr><th>started</th><th></th>"
                "<th class=n>ranks</th><th>machine of rank 0</th><th>Weft</th></tr>\n",
                to);
    for (size_t i = 0; i < json_array_size(run->starts); i++) print_start(json_array_get(run->starts, i), to);
    (void)fputs("</table></div>\n", to);
}
