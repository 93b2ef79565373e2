/* host/tools/ab/comparison_page.c: see comparison_page.h. */
#include "tools/ab/comparison_page.h"

#include "tools/ab/comparison_charts.h"
#include "tools/ab/comparison_words.h"
#include "base/file.h"
#include "base/units.h"
#include "tools/common/bars.h"
#include "tools/common/html.h"
#include "report/plan_diff.h"

#include <math.h>
#include <stdlib.h>

/* ---- sentences ---- */

static void print_sentence(const char *text, const char *class, FILE *to) {
    (void)fprintf(to, "<p class=%s>", class);
    weft_html_text(to, text);
    (void)fputs("</p>\n", to);
}

typedef void sentence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

static void print_sentences(const weft_ab_experiment *experiment, sentence *say, const char *class, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    for (int32_t i = 1; i < experiment->n; i++) {
        say(text, sizeof text, experiment, i);
        if (text[0] != '\0') print_sentence(text, class, to);
    }
}

static void print_arms(const weft_ab_experiment *experiment, FILE *to) {
    (void)fputs("<ul class=legend>", to);
    for (int32_t i = 0; i < experiment->n; i++) {
        (void)fprintf(to, "<li><i class=k%d></i>%c ", (int)i % WEFT_HTML_COLOURS, weft_ab_letter(i));
        weft_html_text(to, experiment->arms[i].spec->label);
        (void)fputs("</li>", to);
    }
    (void)fputs("</ul>\n", to);
}

static void print_tiles(const weft_ab_experiment *experiment, FILE *to) {
    char value[64], about[400];
    (void)fputs("<div class=tiles>\n", to);
    for (int32_t i = 1; i < experiment->n; i++) {
        const weft_ab_arm *arm = &experiment->arms[i];
        (void)snprintf(value, sizeof value, "-");
        if (!isnan(arm->verdict.ratio.median))
            (void)snprintf(value, sizeof value, "%+.1f %%", 100 * weft_ab_share(arm->verdict.ratio.median));
        (void)snprintf(about, sizeof about, "time of %c beside A: %s", weft_ab_letter(i),
                       weft_ab_time_name(experiment, i));
        weft_html_tile(to, value, about);
        (void)snprintf(about, sizeof about, "outcome of %c", weft_ab_letter(i));
        weft_html_tile(to, weft_ab_outcome_name(arm->outcome), about);
    }
    (void)fputs("</div>\n", to);
}

/* ---- what is planned ---- */

static int64_t fact_of(const weft_ab_arm *arm, const char *name) {
    return json_integer_value(json_object_get(json_object_get(arm->facts, "numbers"), name));
}

static void print_memory(const weft_ab_experiment *experiment, FILE *to) {
    static const char *const names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "gaps"};
    static const int colours[] = {0, 2, 1, 4, 6, 9};
    const weft_bars look = {.names = names, .colours = colours, .n_parts = 6, .bytes = true};
    weft_bar bars[WEFT_AB_MOST_ARMS];
    char name[64], total[WEFT_UNIT_SIZE];
    memset(bars, 0, sizeof bars);
    for (int32_t i = 0; i < experiment->n; i++) {
        const weft_ab_arm *arm = &experiment->arms[i];
        (void)snprintf(bars[i].name, sizeof bars[i].name, "%c %.140s", weft_ab_letter(i), arm->spec->label);
        for (int k = 0; k < 6; k++) {
            (void)snprintf(name, sizeof name, "memory %s", names[k]);
            bars[i].parts[k] = (double)fact_of(arm, name);
        }
        bars[i].mark = NAN;
        (void)snprintf(bars[i].total, sizeof bars[i].total, "%s", weft_unit_bytes(total, arm->bytes));
    }
    (void)fputs("<h2>Memory <small>planned, of the rank that takes most</small></h2>\n<div class=card>\n", to);
    weft_bars_print(&look, bars, (size_t)experiment->n, to);
    (void)fputs("</div>\n", to);
}

static void print_difference(const weft_ab_experiment *experiment, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char b[2] = {weft_ab_letter(i), '\0'}, *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    (void)fprintf(to, "<h2>What differs in %s</h2>\n<div class=\"card scroll\"><pre class=mono>", b);
    if (stream != NULL) {
        weft_plan_diff_print(arm->difference, "A", b, stream);
        (void)fprintf(stream, "programs of rank 0: %s\n",
                      arm->programs[0] != '\0' ? arm->programs : "the same instructions");
        (void)fclose(stream);
    }
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        const bool last = *end == '\0';
        *end = '\0';
        weft_html_text(to, line);
        (void)fputc('\n', to);
        line = last ? end : end + 1;
    }
    free(text);
    (void)fputs("</pre></div>\n", to);
}

static void print_page(const weft_ab_experiment *experiment, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    weft_html_begin(to, "weft ab");
    (void)fprintf(to, "<p class=mark>Weft &middot; %d arms by turns</p>\n<h1>", (int)experiment->n);
    for (int32_t i = 0; i < experiment->n; i++) {
        if (i > 0) (void)fputs(" or ", to);
        weft_html_text(to, experiment->arms[i].spec->label);
    }
    (void)fputs("</h1>\n", to);
    print_arms(experiment, to);
    print_tiles(experiment, to);
    print_sentences(experiment, weft_ab_say_time, "note", to);
    print_sentences(experiment, weft_ab_say_outcome, "note", to);
    print_sentences(experiment, weft_ab_say_beside, "soft", to);
    print_sentences(experiment, weft_ab_say_numbers, "soft", to);
    if (experiment->learning.steps > 0) print_sentences(experiment, weft_ab_say_learning, "soft", to);
    if (experiment->alone.rounds > 0) {
        weft_ab_say_alone(text, sizeof text, experiment);
        print_sentence(text, "soft", to);
    }
    if (experiment->times.rounds > 0) {
        weft_ab_say_noise(text, sizeof text, experiment);
        print_sentence(text, "soft", to);
    }
    weft_ab_print_charts(experiment, to);
    print_memory(experiment, to);
    for (int32_t i = 1; i < experiment->n; i++) print_difference(experiment, i, to);
    (void)fprintf(to,
                  "<footer>Written by <code>weft ab</code> of Weft %s: %d rounds of %lld steps an arm.</footer>\n"
                  "</main></body></html>\n",
                  WEFT_VERSION, (int)experiment->times.rounds, (long long)experiment->block);
}

weft_status weft_ab_page_save(const weft_ab_experiment *experiment, const char *path, weft_error *err) {
    weft_file file;
    FILE *to = weft_file_begin(&file, path, err);
    if (to == NULL) return WEFT_E_SYSTEM;
    print_page(experiment, to);
    return weft_file_commit(&file, err);
}
