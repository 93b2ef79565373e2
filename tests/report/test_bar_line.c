/* The progress line fits every terminal, for all widths, run lengths, losses and speeds. */
#include "suite.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "train/progress.h"

/* Returns the columns of a line: controls take none, a UTF-8 character takes one. */
static int columns(const char *text) {
    int n = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\033') {
            while (*text != 'm') text++;
        } else n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

static int marks(const char *text, const char *sign) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, sign)) != NULL; at += strlen(sign)) n++;
    return n;
}

static weft_terminal terminal_of(int width, bool colour, bool utf8) {
    const weft_terminal out = {.is_one = true, .renews = true, .colour = colour, .width = width, .utf8 = utf8};
    return out;
}

TESTS(fits_every_width, 5) {
    static const int64_t steps[] = {1, 9, 1200, 2000000, INT64_MAX / 200};
    static const double losses[] = {0.0, 2.3456789, 99.99999, 1e30, 1e300, NAN, INFINITY};
    static const double rates[] = {0.0, 999.6, 12345.0, 99949.0, 999999.0, 1e12};
    static const double left[] = {0.0, 59.7, 3599.9, 86399.0, 1e9, 1e300};
    char out[WEFT_BAR_LINE_SIZE];
    const int64_t n = steps[_i];
    for (int width = 1; width <= 140; width++)
        for (size_t l = 0; l < sizeof losses / sizeof *losses; l++)
            for (int part = 0; part < 6; part++) {
                const weft_bar_line line = {part % 3 == 2 ? n : n / 3 * (part % 3),
                                            n,
                                            losses[l],
                                            rates[part],
                                            left[part],
                                            part == 0 ? "seq" : NULL};
                const weft_terminal terminal = terminal_of(width, part % 2 == 0, part < 3);
                weft_bar_line_write(out, &line, &terminal);
                must(columns(out) <= (width > 1 ? width - 1 : 1));
                must(strpbrk(out, "\r\n") == NULL);
            }
}

TEST(says_all_of_it) {
    const weft_bar_line line = {300, 1200, 2.0912, 5123.9, 725.0, NULL};
    const weft_bar_line rows = {300, 1200, 2.0912, 5123.9, 725.0, "seq"};
    char out[WEFT_BAR_LINE_SIZE];
    weft_terminal terminal = terminal_of(80, false, false);
    weft_bar_line_write(out, &line, &terminal);
    ck_assert_ptr_nonnull(strstr(out, "step   300/1,200  ===."));
    ck_assert_ptr_nonnull(strstr(out, "....  loss 2.0912    5,123 tok/s  12 min 05 s left"));
    weft_bar_line_write(out, &rows, &terminal);
    ck_assert_ptr_nonnull(strstr(out, "seq   300/1,200  ==="));
    terminal.width = 40;
    weft_bar_line_write(out, &line, &terminal);
    ck_assert_str_eq(out, " 300/1200  =...... 2.091  5.1k/s 12m05s");
    terminal.width = 34;
    weft_bar_line_write(out, &line, &terminal);
    ck_assert_str_eq(out, " 25%  =..... 2.091  5.1k/s 12m05s");
}

/* The filled share of the bar equals that of the run. */
TEST(fills_with_the_run) {
    char out[WEFT_BAR_LINE_SIZE];
    const weft_terminal terminal = terminal_of(100, false, true);
    for (int64_t step = 0; step <= 640; step++) {
        const weft_bar_line line = {step, 640, 1.0, 1e4, 10.0, NULL};
        int full = 0, all = 0;
        weft_bar_line_write(out, &line, &terminal);
        full = marks(out, "\u2501");
        all = full + marks(out, "\u2500");
        ck_assert_int_ge(all, 20);
        ck_assert_int_eq(full, (int)(step * all / 640));
    }
}

int main(void) {
    return run_tests(tcase_create("bar_line"));
}
