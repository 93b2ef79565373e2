/* host/cli/cli.h: from the command line to one command.
 *     weft COMMAND [run.ini] [section.key=value ...] [--flags]
 *
 * A command is one file with one weft_command, and one name in command/commands.c; a tool is a program of its own
 * (tools.h). Overrides, flags and other arguments come in any order. `--flag value` and `--flag=value` are the same;
 * after `--` everything is an argument.
 *     static weft_exit eval_run(const weft_args *args, weft_error *err) { ... }
 *     static const weft_flag eval_flags[] = {{"json", NULL, false, "Print an object instead of a table."}, {0}};
 *     const weft_command weft_command_eval = {
 *         .name = "eval", .summary = "Measure the loss.", .usage = "run.ini [section.key=value ...]",
 *         .takes = WEFT_TAKES_CONFIG, .flags = eval_flags, .examples = "  weft eval run.ini\n", .run = eval_run};
 */
#ifndef WEFT_HOST_CLI_CLI_H
#define WEFT_HOST_CLI_CLI_H

#include <stdbool.h>
#include <weft/base.h>

/* The process's exit status. */
typedef enum weft_exit {
    WEFT_EXIT_DONE = 0,
    WEFT_EXIT_FAILED = 1,  /* err says why */
    WEFT_EXIT_USAGE = 2,   /* the command line itself was wrong; err says how */
    WEFT_EXIT_ANSWER = 10, /* up to WEFT_EXIT_LAST_ANSWER: a command's own answers (`weft ab`) */
    WEFT_EXIT_LAST_ANSWER = 73,
    WEFT_EXIT_STOPPED = 75 /* by a signal, after saving */
} weft_exit;

static inline bool weft_exit_answers(int status) {
    return status >= WEFT_EXIT_ANSWER && status <= WEFT_EXIT_LAST_ANSWER;
}

/* DONE for WEFT_OK, STOPPED for WEFT_E_STOPPED, FAILED otherwise. */
weft_exit weft_exit_from(weft_status status);

typedef struct weft_flag {
    const char *name;    /* without the dashes; NULL ends a table */
    const char *value;   /* what its value is called in the help ("N", "TEXT"); NULL: takes none */
    bool value_optional; /* `--resume` and `--resume=inexact`; a value only after `=` */
    const char *help;
} weft_flag;

/* Arguments of one command, already judged: flags are known, their values are there, the counts fit. */
typedef struct weft_args weft_args;

typedef enum weft_takes {
    WEFT_TAKES_CONFIG = 1,    /* the first plain argument is the INI file, and overrides are allowed */
    WEFT_TAKES_ARGUMENTS = 2, /* neither: what is no flag is a plain argument, a text with = too */
    WEFT_TAKES_DIRECTORY = 3  /* as CONFIG; a model's directory or a run's may stand for the file (directory.h) */
} weft_takes;

typedef struct weft_command {
    const char *name;       /* "eval"; two words for a part of a command: "config check" */
    const char *summary;    /* one line; NULL for a tool, whose line is in tools.c */
    const char *usage;      /* after the name: "run.ini [section.key=value ...]"; flags are added by themselves */
    int32_t takes;          /* weft_takes */
    int32_t min_extra;      /* plain arguments (after the INI file) */
    int32_t max_extra;      /* -1: any number */
    const weft_flag *flags; /* NULL: none */
    const char *more;       /* further text of --help, wrapped when printed, or NULL */
    const char *examples;   /* two lines "  weft NAME ...\n" */
    weft_exit (*run)(const weft_args *args, weft_error *err);
} weft_command;

const char *weft_args_config(const weft_args *self); /* path of the INI file, as given; NULL: the overrides say all */
const char *const *weft_args_overrides(const weft_args *self, size_t *n);
const char *weft_args_extra(const weft_args *self, size_t i); /* a plain argument; NULL past the end */

bool weft_args_declares(const weft_args *self, const char *flag); /* the command has such a flag, given or not */

/* A flag that the command declares. */
bool weft_args_has(const weft_args *self, const char *flag);
const char *weft_args_value(const weft_args *self, const char *flag); /* NULL: not given, or without a value */

/* The number after a flag, or fallback where the flag is not given; range as in weft/keys.h, "[0,inf)". False: err has
 * the sentence, and the command returns WEFT_EXIT_USAGE. */
bool weft_args_i64(const weft_args *self, int64_t *out, const char *flag, const char *range, int64_t fallback,
                   weft_error *err);
bool weft_args_f64(const weft_args *self, double *out, const char *flag, const char *range, double fallback,
                   weft_error *err);

/* Arguments of a command, without the program's and the command's names; they stay argv's. False: err says what is
 * wrong. weft_args_free also after a failure. */
bool weft_args_parse(weft_args **out, const weft_command *command, int argc, char **argv, weft_error *err);
/* What stands where an INI file could: a directory becomes its INI file and what it says (directory.h). */
weft_status weft_args_locate(weft_args *self, weft_error *err);
void weft_args_free(weft_args *self);

/* The whole program: runs the command of the table (ended by NULL) that the command line names, prints its error on
 * stderr and returns the exit status. A command that is a tool (tools.h) is run by its own program. */
int weft_cli_main(int argc, char **argv, const weft_command *const *table);

#endif
