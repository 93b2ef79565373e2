/* host/cli/cli.h: parses the command line and runs one command.
 *     weft COMMAND [run.ini] [section.key=value ...] [--flags]
 *
 * A command is one file with one weft_command, one name in main.c, and one row in cli.c; a tool is a separate program
 * (cli.c). Overrides, flags and other arguments are accepted in any order. `--flag value` and `--flag=value` are the
 * same; after `--` every word is an argument.
 *     static weft_exit eval_run(const weft_args *args, weft_error *err) { ... }
 *     static const weft_flag eval_flags[] = {{"json", NULL, false, "Print an object instead of a table."}, {0}};
 *     const weft_command weft_command_eval = {
 *         .name = "eval", .usage = "run.ini [section.key=value ...]",
 *         .takes = WEFT_TAKES_CONFIG, .flags = eval_flags, .examples = "  weft eval run.ini\n", .run = eval_run}; */
#ifndef WEFT_HOST_CLI_CLI_H
#define WEFT_HOST_CLI_CLI_H

#include <stdbool.h>
#include <weft/base.h>

/* The process's exit status. */
typedef enum weft_exit {
    WEFT_EXIT_DONE = 0,
    WEFT_EXIT_FAILED = 1,  /* err has the message */
    WEFT_EXIT_USAGE = 2,   /* invalid command line; err has the message */
    WEFT_EXIT_ANSWER = 10, /* up to WEFT_EXIT_LAST_ANSWER: a command's own results (`weft ab`) */
    WEFT_EXIT_LAST_ANSWER = 73,
    WEFT_EXIT_STOPPED = 75 /* by a signal, after saving */
} weft_exit;

static inline bool weft_exit_answers(int status) {
    return status >= WEFT_EXIT_ANSWER && status <= WEFT_EXIT_LAST_ANSWER;
}

/* Returns DONE for WEFT_OK, STOPPED for WEFT_E_STOPPED, FAILED otherwise. */
weft_exit weft_exit_from(weft_status status);

typedef struct weft_flag {
    const char *name;    /* without the dashes; NULL ends a table */
    const char *value;   /* name of its value in the help ("N", "TEXT"); NULL: no value */
    bool value_optional; /* `--resume` and `--resume=inexact`; a value only after `=` */
    const char *help;
} weft_flag;

/* Validated arguments of one command: known flags with their values, and the right number of arguments. */
typedef struct weft_args weft_args;

typedef enum weft_takes {
    WEFT_TAKES_CONFIG = 1,    /* the first plain argument is the INI file, and overrides are allowed */
    WEFT_TAKES_ARGUMENTS = 2, /* neither: every word that is no flag is a plain argument, even with = */
    WEFT_TAKES_DIRECTORY = 3  /* as CONFIG; the directory of a model or a run may replace the file (directory.h) */
} weft_takes;

typedef struct weft_command {
    const char *name;       /* "eval"; two words for a subcommand: "config check" */
    const char *usage;      /* after the name: "run.ini [section.key=value ...]"; flags are added automatically */
    int32_t takes;          /* weft_takes */
    int32_t min_extra;      /* plain arguments (after the INI file) */
    int32_t max_extra;      /* -1: any number */
    const weft_flag *flags; /* NULL: no flags */
    const char *more;       /* further text of --help, wrapped when printed, or NULL */
    const char *examples;   /* two lines "  weft NAME ...\n" */
    weft_exit (*run)(const weft_args *args, weft_error *err);
} weft_command;

const char *weft_args_config(const weft_args *self); /* path of the INI file, as given; NULL: overrides only */
const char *const *weft_args_overrides(const weft_args *self, size_t *n);
const char *weft_args_extra(const weft_args *self, size_t i); /* a plain argument; NULL past the end */

bool weft_args_declares(const weft_args *self, const char *flag); /* the command has such a flag, set or not */

/* Returns whether a declared flag is set. */
bool weft_args_has(const weft_args *self, const char *flag);
const char *weft_args_value(const weft_args *self, const char *flag); /* NULL: unset, or without a value */

/* Parse the number after a flag, or return fallback if the flag is unset; range as in weft/keys.h, "[0,inf)". Return
 * false with a message in err; the command then returns WEFT_EXIT_USAGE. */
bool weft_args_i64(const weft_args *self, int64_t *out, const char *flag, const char *range, int64_t fallback,
                   weft_error *err);
bool weft_args_f64(const weft_args *self, double *out, const char *flag, const char *range, double fallback,
                   weft_error *err);

/* Parses the arguments of a command, without the program's and the command's names; strings remain in argv. Call
 * weft_args_free also after a failure. */
weft_status weft_args_parse(weft_args **out, const weft_command *command, int argc, char **argv, weft_error *err);
/* Replaces a directory argument by its INI file and its overrides (directory.h). */
weft_status weft_args_locate(weft_args *self, weft_error *err);
void weft_args_free(weft_args *self);

/* Runs the command of the table (ended by NULL) that the command line names, prints its error on stderr and returns the
 * exit status. A tool (cli.c) runs as a separate program. */
int weft_cli_main(int argc, char **argv, const weft_command *const *table);

#endif
