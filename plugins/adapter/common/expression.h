/* plugins/adapter/common/expression.h: regular expressions that a module's path is held against. PEFT's files have
 * those of Python's re, and here is PCRE2: what the two read alike is taken, and the rest is told. */
#ifndef WEFT_ADAPTER_EXPRESSION_H
#define WEFT_ADAPTER_EXPRESSION_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct expression expression;

/* Why there is none, to be said behind the text: "is no regular expression: missing closing parenthesis". */
typedef struct expression_fault {
    char text[400];
} expression_fault;

typedef enum expression_form {
    EXPRESSION_WHOLE, /* all of a path has to match: re.fullmatch */
    EXPRESSION_END    /* as a key of PEFT's rank_pattern: all of it, or what stands behind one of its dots */
} expression_form;

/* of_peft: it is one of Python's, and refused where it has what reads otherwise here, or is not there at all. NULL:
 * see why. */
expression *expression_open(const char *text, expression_form form, bool of_peft, expression_fault *why);
/* 1: it matches, 0: not, -1: that takes more steps than PCRE2 allows. */
int expression_fits(const expression *self, const char *path);
void expression_close(expression *self);

#endif
