/* host/base/message.c: see message.h. */
#include "base/message.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/words.h"

/* Returns the columns of n bytes of UTF-8, one per character. */
static int columns(const char *text, size_t n) {
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void weft_print_wrapped(FILE *file, const char *text, int column, int indent, int width) {
    const char *at = text;
    while (*at != '\0') {
        const size_t blanks = strspn(at, " "), n = strcspn(at + blanks, " \n");
        const int wide = columns(at + blanks, n);
        if (width > 0 && blanks > 0 && column > indent && column + (int)blanks + wide > width) {
            (void)fprintf(file, "\n%*s", indent, "");
            column = indent;
        } else {
            (void)fprintf(file, "%*s", (int)blanks, "");
            column += (int)blanks;
        }
        (void)fwrite(at + blanks, 1, n, file);
        column += wide;
        at += blanks + n;
        if (*at != '\n') continue;
        at++;
        (void)fprintf(file, "\n%*s", *at == '\0' || *at == '\n' ? 0 : indent, "");
        column = indent;
    }
}

void weft_message_print(weft_message_kind kind, const char *prefix, const char *text) {
    static const char *const colours[] = {"\033[31m", "\033[33m", ""};
    const weft_terminal terminal = weft_terminal_of(STDERR_FILENO);
    const char *colour = terminal.colour ? colours[kind] : "";
    char *line = NULL, *tame = strdup(text);
    size_t size = 0;
    FILE *file = open_memstream(&line, &size);
    if (tame == NULL || file == NULL) abort();
    weft_words_tame(tame);
    (void)fprintf(file, "%s%s:%s ", colour, prefix, *colour != '\0' ? "\033[0m" : "");
    weft_print_wrapped(file, tame, columns(prefix, strlen(prefix)) + 2, 0, terminal.width);
    (void)fputc('\n', file);
    if (fclose(file) == 0) (void)fwrite(line, 1, size, stderr);
    free(line);
    free(tame);
}
