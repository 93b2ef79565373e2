/* host/cli/cli.c: selects the command, prints help, and determines the exit status. */
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/message.h"
#include "config/nearest.h"
#include "launch/find.h"
#include "launch/world.h"
#include "plugin/crash.h"
#include "run/process_context.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* All commands. Most are separate programs: `weft ab` runs libexec/weft/weft-ab with the same arguments.
 * Any other executable weft-NAME, in that directory or in a directory of PATH, is the command `weft NAME`. It receives
 * the arguments after NAME, and WEFT_PROGRAM contains the path of `weft` for calls back. */

typedef struct weft_tool {
    const char *name;    /* of the command: "ab", "plugins check" */
    const char *program; /* "weft-ab"; NULL: of `weft` itself */
    const char *summary; /* one line */
} weft_tool;

static const weft_tool tools[] = {
    {"ab", "weft-ab", "Compare settings of a run: which is better, and by how much."},
    {"config check", "weft-config", "Validate a configuration with its plugins, model and data."},
    {"config describe", "weft-config", "Print the host's keys with default, range and help."},
    {"config explain", "weft-config", "Print every value with its source."},
    {"data show", "weft-data", "Print sequences as the model sees them, with their targets."},
    {"data stats", "weft-data", "Print document counts, lengths, truncation and packing gain."},
    {"eval", NULL, "Measure the loss and perplexity of a model."},
    {"generate", NULL, "Continue a prompt with a model, or chat."},
    {"init", "weft-init", "Write a configuration for a model and a data file."},
    {"merge", "weft-merge", "Merge an adapter into its base."},
    {"plan", "weft-plan", "Show memory, schedule and program of a run before it runs."},
    {"plugins check", "weft-check", "Check a plugin against the rules of its kind."},
    {"plugins describe", "weft-plugins", "Print a plugin and its keys with default, range and help."},
    {"plugins exchange", "weft-check", "Check every exchange of a communicator."},
    {"plugins list", "weft-plugins", "List all plugins, with a reason for each that is unusable."},
    {"plugins new", "weft-plugins", "Write the source of a new plugin, with build and test."},
    {"profile", "weft-profile", "Measure the time of a training step by operator."},
    {"prove", "weft-prove", "Prove that all strategies give the same bits."},
    {"report", "weft-report", "Summarize and compare runs."},
    {"tokenize", "weft-tokenize", "Convert text to token ids, or ids to text."},
    {"train", NULL, "Fine-tune a model as an INI file configures it."},
};

enum { N_TOOLS = sizeof tools / sizeof *tools };

/* Finds the directory of the tools: below the program's in a build tree, else next to bin. */
static bool find_directory(char out[WEFT_PATH_BYTES]) {
    return weft_sibling_program(out, "libexec/weft") || weft_sibling_program(out, "../libexec/weft");
}

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Replaces this process by the tool's program. Returns only if that fails, after an error on stderr. */
static void run_tool(const weft_tool *self, char **argv) {
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES];
    if (!find_directory(directory)) {
        (void)fprintf(stderr,
                      "weft %s: the program %s is missing: there is no libexec/weft next to this program. "
                      "Fix: install all files of Weft.\n",
                      self->name, self->program);
        return;
    }
    if (weft_path_join(path, directory, self->program, NULL) == WEFT_OK) (void)execv(path, argv);
    (void)fprintf(stderr, "weft %s: %s/%s cannot be run: %s. Fix: install all files of Weft.\n", self->name, directory,
                  self->program, strerror(errno));
}

/* Iterates over the directories that may contain weft-NAME: libexec/weft, then those of PATH. *at: NULL at first. */
static bool next_directory(char out[WEFT_PATH_BYTES], const char **at) {
    if (*at == NULL) {
        const char *path = getenv("PATH");
        *at = path == NULL ? "" : path;
        if (find_directory(out)) return true;
    }
    while (**at != '\0') {
        const char *entry = *at;
        const size_t n = strcspn(entry, ":");
        *at += n + (entry[n] == ':');
        /* an empty entry or a relative one would make the working directory a source of programs */
        if (entry[0] != '/' || n >= WEFT_PATH_BYTES) continue;
        (void)snprintf(out, WEFT_PATH_BYTES, "%.*s", (int)n, entry);
        return true;
    }
    return false;
}

/* Replaces this process by the program weft-NAME of libexec/weft or PATH, where argv[1] is NAME. Returns false if
 * there is no such program; true if it cannot be run, after an error on stderr. */
static bool run_foreign(char **argv) {
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], weft[WEFT_PATH_BYTES];
    bool found = false;
    /* "weft-" without a name is invalid, and a name with a slash would leave the directory. */
    if (!isalnum((unsigned char)argv[1][0]) || strchr(argv[1], '/') != NULL) return false;
    for (const char *at = NULL; !found && next_directory(directory, &at);) {
        const int n = snprintf(path, sizeof path, "%s/weft-%s", directory, argv[1]);
        found = n > 0 && (size_t)n < sizeof path && is_program(path);
    }
    if (!found) return false;
    if (weft_sibling_program(weft, "weft")) (void)setenv("WEFT_PROGRAM", weft, 1);
    (void)execv(path, argv + 1);
    (void)fprintf(stderr, "weft %s: %s cannot be run: %s\n", argv[1], path, strerror(errno));
    return true;
}

static bool is_built_in(const char *program) {
    for (size_t i = 0; i < N_TOOLS; i++)
        if (tools[i].program != NULL && strcmp(tools[i].program, program) == 0) return true;
    return false;
}

/* Prints the names of the programs weft-NAME that are not built in, one a line, with their paths. */
static void print_foreign(FILE *file) {
    char directory[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES + 256];
    for (const char *at = NULL; next_directory(directory, &at);) {
        DIR *entries = opendir(directory);
        const struct dirent *entry = NULL;
        while (entries != NULL && (entry = readdir(entries)) != NULL) {
            const char *name = entry->d_name;
            if (strncmp(name, "weft-", 5) != 0 || name[5] == '\0' || is_built_in(name)) continue;
            (void)snprintf(path, sizeof path, "%s/%s", directory, name);
            if (is_program(path)) (void)fprintf(file, "  %-18s%s\n", name + 5, path);
        }
        if (entries != NULL) (void)closedir(entries);
    }
}

/* The commands of this program, ended by NULL. */
static const weft_command *const *commands;

/* Returns whether `word` is the first word of a two-word name. */
static bool is_group(const char *name, const char *word) {
    const size_t n = strlen(word);
    return strncmp(name, word, n) == 0 && name[n] == ' ';
}

static bool is_any_group(const char *word) {
    for (size_t i = 0; i < N_TOOLS; i++)
        if (is_group(tools[i].name, word)) return true;
    return false;
}

/* Prints the commands; only those of `group` if it is not NULL. */
static void print_commands(FILE *file, const char *group) {
    for (size_t i = 0; i < N_TOOLS; i++)
        if (group == NULL || is_group(tools[i].name, group))
            (void)fprintf(file, "  %-18s%s\n", tools[i].name, tools[i].summary);
    if (group == NULL) print_foreign(file);
}

/* Columns of all help. */
enum { HELP_WIDTH = 80, HELP_COLUMN = 22 };

static void print_help(FILE *file) {
    (void)fprintf(file, "usage: weft COMMAND [run.ini] [section.key=value ...] [--flags]\n\n"
                        "Fine-tunes language models. Models, data, optimizers, strategies and devices are\n"
                        "plugins, selected in the INI file.\n\n");
    print_commands(file, NULL);
    (void)fprintf(file, "\nExamples:\n"
                        "  weft init /models/TinyLlama story.txt   # writes run.ini\n"
                        "  weft train run.ini optimizer.lr=3e-5\n\n"
                        "weft COMMAND --help describes a command; weft --version prints the version. A\n"
                        "program weft-NAME on the PATH is the command NAME.\n\n"
                        "Exit status: 0 success, 1 failure, 2 wrong usage, 10 to 22 a result of ab or\n"
                        "plugins check, 75 stopped by a signal after saving.\n");
}

static bool has_flags(const weft_command *command) {
    return command->flags != NULL && command->flags->name != NULL;
}

static void print_usage(FILE *file, const weft_command *command) {
    (void)fprintf(file, "usage: weft %s%s%s%s\n", command->name, *command->usage != '\0' ? " " : "", command->usage,
                  has_flags(command) ? " [--flags]" : "");
}

static void print_command_help(FILE *file, const weft_command *command) {
    const char *summary = "";
    for (size_t i = 0; i < N_TOOLS; i++)
        if (strcmp(tools[i].name, command->name) == 0) summary = tools[i].summary;
    print_usage(file, command);
    (void)fprintf(file, "\n%s\n%s", summary, has_flags(command) ? "\n" : "");
    for (const weft_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++) {
        char name[80];
        if (flag->value == NULL) (void)snprintf(name, sizeof name, "--%s", flag->name);
        else (void)snprintf(name, sizeof name, flag->value_optional ? "--%s[=%s]" : "--%s %s", flag->name, flag->value);
        if (fprintf(file, "  %-*s", HELP_COLUMN - 2, name) > HELP_COLUMN) (void)fprintf(file, "\n%*s", HELP_COLUMN, "");
        weft_print_wrapped(file, flag->help, HELP_COLUMN, HELP_COLUMN, HELP_WIDTH);
        (void)fputc('\n', file);
    }
    if (command->more != NULL) {
        (void)fputc('\n', file);
        weft_print_wrapped(file, command->more, 0, 0, HELP_WIDTH);
        (void)fputc('\n', file);
    }
    if (command->examples != NULL) (void)fprintf(file, "\nExamples:\n%s", command->examples);
}

/* Returns the number of words, 1 or 2, at the start of the command line that equal `name`; 0: no match. */
static int count_name(const char *name, int argc, char **argv) {
    if (strcmp(name, argv[1]) == 0) return 1;
    return argc > 2 && is_group(name, argv[1]) && strcmp(name + strlen(argv[1]) + 1, argv[2]) == 0 ? 2 : 0;
}

/* Finds the command that the first *words words name; NULL: unknown. */
static const weft_command *find_command(int argc, char **argv, int *words) {
    for (size_t i = 0; commands[i] != NULL; i++)
        if ((*words = count_name(commands[i]->name, argc, argv)) > 0) return commands[i];
    return NULL;
}

static const weft_tool *find_tool(int argc, char **argv) {
    for (size_t i = 0; i < N_TOOLS; i++)
        if (tools[i].program != NULL && count_name(tools[i].name, argc, argv) > 0) return &tools[i];
    return NULL;
}

/* Reports an unknown command. */
static weft_exit unknown(const char *word) {
    weft_nearest near = {word, "", 0};
    char meant[96];
    for (size_t i = 0; i < N_TOOLS; i++) weft_nearest_offer(&near, tools[i].name, strcspn(tools[i].name, " "));
    weft_nearest_print(&near, meant, sizeof meant);
    (void)fprintf(stderr, "weft: there is no command %.80s%s\n", word, meant);
    (void)fprintf(stderr, "usage: weft COMMAND [run.ini] [section.key=value ...] [--flags]; weft --help\n");
    return WEFT_EXIT_USAGE;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* Handles `weft GROUP [word]` without a known command of the group. */
static weft_exit unknown_in_group(const char *group, const char *word) {
    if (word != NULL && is_help(word)) {
        (void)fprintf(stdout, "usage: weft %s ...\n\n", group);
        print_commands(stdout, group);
        return WEFT_EXIT_DONE;
    }
    if (word == NULL) (void)fprintf(stderr, "weft %s: the command is missing\n", group);
    else (void)fprintf(stderr, "weft %s: there is no command %s %.80s\n", group, group, word);
    print_commands(stderr, group);
    return WEFT_EXIT_USAGE;
}

/* Returns whether --help is among the arguments before a `--`. */
static bool wants_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* Reason for lost output on stdout; NULL: all output was written. errno is only valid if this flush failed: after an
 * earlier printf failure it belongs to a later call. */
static const char *output_lost;
static void flush_output(void) {
    if (fflush(stdout) != 0) {
        if (output_lost == NULL) output_lost = strerror(errno);
    } else if (ferror(stdout) && output_lost == NULL) output_lost = "some bytes are lost";
}

static void print_error(const weft_command *command, weft_exit status, weft_error *err) {
    char prefix[80];
    if (status == WEFT_EXIT_DONE || weft_exit_answers(status)) return;
    if (status == WEFT_EXIT_STOPPED && weft_world_get()->rank > 0) return; /* rank 0 prints that the run stopped */
    /* rank 0 prints the error (model/process_group.h) */
    if (*err->text == '\0' && err->code == WEFT_E_PEER) return;
    (void)snprintf(prefix, sizeof prefix, "weft %s", command->name);
    weft_message_print(WEFT_LOG_ERROR, prefix,
                       *err->text != '\0'
                           ? err->text
                           : "failed without an error message, which is a defect of weft or of a plugin");
    if (status == WEFT_EXIT_USAGE) print_usage(stderr, command);
}

/* For `weft plugins check`, which starts this program and needs the error code of a failure. The code is written to the
 * file that it names; ranks started here append to a second file, a line each. The line also has whether standard
 * output and error are unchanged. A mapped file has the current plugin call: an end that bypasses the C library leaves
 * no other information. */
static const char *code_file; /* NULL: none */
static bool is_of_ranks;
static struct stat streams[2];

static void take_code_file(void) {
    const char *named = getenv("WEFT_CODE_FILE"), *ranks = getenv("WEFT_RANK_CODES"),
               *call_file = getenv("WEFT_CALL_FILE");
    const int file = call_file == NULL ? -1 : open(call_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *call = MAP_FAILED;
    is_of_ranks = named == NULL && ranks != NULL;
    if (named != NULL || ranks != NULL) code_file = weft_strdup(named != NULL ? named : ranks);
    (void)unsetenv("WEFT_CODE_FILE");
    (void)unsetenv("WEFT_CALL_FILE");
    for (int i = 0; i < 2; i++) (void)fstat(1 + i, &streams[i]);
    if (file < 0) return;
    if (posix_fallocate(file, 0, sizeof(weft_crumb)) == 0) /* a page without reserved space could be missing later */
        call = mmap(NULL, sizeof(weft_crumb), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (call != MAP_FAILED) weft_crash_crumb(call);
}

static void write_code(weft_exit status, const weft_error *err) {
    FILE *file = NULL;
    bool keeps = true;            /* ranks redirect their own output (launch/world.h), but never close it */
    for (int i = 0; i < 2; i++) { /* before any file is opened with their numbers */
        const bool may_move = i == 0 && is_of_ranks;
        struct stat now;
        keeps = keeps && fstat(1 + i, &now) == 0 &&
                (may_move || (now.st_dev == streams[i].st_dev && now.st_ino == streams[i].st_ino));
    }
    file = code_file == NULL ? NULL : fopen(code_file, is_of_ranks ? "a" : "w");
    if (file == NULL) return;
    (void)fprintf(file, "%d%s\n",
                  status == WEFT_EXIT_USAGE  ? WEFT_E_USER
                  : status == WEFT_EXIT_DONE ? 0
                                             : (int)err->code,
                  keeps ? "" : " lost");
    (void)fclose(file);
}

static weft_exit run_command(const weft_command *command, int argc, char **argv) {
    const struct timespec moment = {0, 300000000};
    const weft_world *world = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_args *args = NULL;
    weft_exit status = WEFT_EXIT_USAGE;
    if (wants_help(argc, argv)) {
        print_command_help(stdout, command);
        return WEFT_EXIT_DONE;
    }
    if (weft_args_parse(&args, command, argc, argv, &err) == WEFT_OK)
        status = weft_args_locate(args, &err) == WEFT_OK ? command->run(args, &err) : WEFT_EXIT_FAILED;
    flush_output();
    print_error(command, status, &err);
    write_code(status, &err);
    /* MPICH's launcher discards pending output when a rank ends abnormally: the last lines of that rank and of the
     * ranks that it ends as a result. */
    world = weft_world_get();
    if (status != WEFT_EXIT_DONE && world->size > 1 && !world->is_planned) (void)nanosleep(&moment, NULL);
    if (status == WEFT_EXIT_FAILED && weft_args_declares(args, "ranks")) {
        /* a rank that has not connected to the others yet notifies its launcher */
        size_t n = 0;
        const char *const *overrides = weft_args_overrides(args, &n);
        weft_launch_want(WEFT_RANKS_TRAINED, 0);
        weft_process_context_meet_failed(weft_args_config(args), overrides, n);
    }
    weft_args_free(args);
    return status;
}

static weft_exit dispatch(int argc, char **argv) {
    const weft_command *command = NULL;
    int words = 0;
    if (argc < 2) {
        print_help(stderr);
        return WEFT_EXIT_USAGE;
    }
    if (is_help(argv[1])) {
        print_help(stdout);
        return WEFT_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "version") == 0) {
        (void)printf("weft %s (SDK %d.%d)\n", WEFT_VERSION, WEFT_SDK_HEADERS / 1000, WEFT_SDK_HEADERS % 1000);
        return WEFT_EXIT_DONE;
    }
    command = find_command(argc, argv, &words);
    if (command != NULL) return run_command(command, argc - 1 - words, argv + 1 + words);
    if (is_any_group(argv[1])) return unknown_in_group(argv[1], argc > 2 ? argv[2] : NULL);
    return run_foreign(argv) ? WEFT_EXIT_FAILED : unknown(argv[1]);
}

int weft_cli_main(int argc, char **argv, const weft_command *const *table) {
    const weft_tool *tool = NULL;
    weft_exit status = WEFT_EXIT_FAILED;
    int words = 0;
    commands = table;
    /* A closed descriptor 0, 1 or 2 would be reused by the first opened file, which would receive printed output. The
     * substitutes fail to read or to write, like closed descriptors. */
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        if (fcntl(i, F_GETFD) < 0) (void)open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (argc > 1 && find_command(argc, argv, &words) == NULL && (tool = find_tool(argc, argv)) != NULL) {
        run_tool(tool, argv);
        return WEFT_EXIT_FAILED;
    }
    /* A device plugin loads OpenMP, which reads its settings then. By default its threads spin for milliseconds while
     * they wait for work, which makes a step ten times slower on a machine with other load. A short spin costs no time
     * there and keeps the speed of a free machine. The user's own settings are kept. */
    if (getenv("OMP_WAIT_POLICY") == NULL) (void)setenv("GOMP_SPINCOUNT", "5000", 0);
    weft_crash_install(STDERR_FILENO);
    (void)signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes a failed write, with an error */
    weft_exit_guard_install();
    take_code_file();
    status = dispatch(argc, argv);
    flush_output();
    if (output_lost != NULL && status == WEFT_EXIT_DONE) {
        (void)fprintf(stderr, "weft: the output cannot be written: %s\n", output_lost);
        status = WEFT_EXIT_FAILED;
    }
    weft_exit_guard_reached();
    return status;
}
