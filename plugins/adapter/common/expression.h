/* plugins/adapter/common/expression.h: regular expressions for module paths. PEFT's files use Python's re, and this
 * code uses PCRE2. Expressions are accepted if both read them identically; others are rejected with the reason. */
#ifndef WEFT_ADAPTER_EXPRESSION_H
#define WEFT_ADAPTER_EXPRESSION_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct expression expression;

/* Reason of a failure, to be appended to the text: "is no regular expression: missing closing parenthesis". */
typedef struct expression_fault {
    char text[400];
} expression_fault;

typedef enum expression_form {
    EXPRESSION_WHOLE, /* must match the complete path: re.fullmatch */
    EXPRESSION_END    /* matches like a key of PEFT's rank_pattern: the complete path, or a part of it after a dot */
} expression_form;

/* of_peft: a Python expression; fails if PCRE2 reads it differently or does not support it. NULL: failed, see `why`. */
expression *expression_open(const char *text, expression_form form, bool of_peft, expression_fault *why);
/* Returns 1 for a match, 0 without one, -1 if PCRE2's step limit is exceeded. */
int expression_fits(const expression *self, const char *path);
void expression_close(expression *self);

#endif
