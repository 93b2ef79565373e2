/* host/launch/world.c: see world.h. */
#include "launch/world.h"

#include "base/message.h"
#include "config/number.h"
#include "launch/heartbeat.h"
#include "plugin/crash.h"
#include "plugin/services.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

weft_status weft_log_ranks_validate(weft_world *world, const char *list, const weft_config *config, weft_error *err) {
    const char *rest = list, *part = NULL;
    char text[32];
    size_t n = 0;
    int64_t rank = 0;
    world->speaks = strcmp(list, "all") == 0;
    if (world->speaks) return WEFT_OK;
    while (weft_part_next(&rest, ',', &part, &n)) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, part);
        if (n >= sizeof text || !weft_number_i64(&rank, text) || rank < 0)
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "is not a list of ranks. Allowed: 0, all, or numbers separated by commas (0,2)");
        if (world->size > 1 && rank >= world->size)
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "contains rank %lld, but this run has ranks 0 to %d. Fix: remove it, or set all",
                                      (long long)rank, (int)world->size - 1);
        world->speaks |= rank == world->rank;
    }
    return WEFT_OK;
}

/* ---- log prefix: stdout and stderr become streams that prefix each line with the rank ---- */

/* A line is written at once, so that lines of several ranks do not mix. On a terminal it is written immediately,
 * because a progress line has no end. */
typedef struct prefixed {
    int descriptor;
    bool is_inside;  /* inside a line */
    bool buffers;    /* buffers until the end of the line */
    char line[4096]; /* its beginning */
    size_t n;
} prefixed;

static prefixed to_out = {.descriptor = STDOUT_FILENO}, to_err = {.descriptor = STDERR_FILENO};
static char prefix[16];
static FILE *plain; /* stdout before the replacement; NULL: not replaced */

static bool flush_line(prefixed *self) {
    size_t done = 0;
    bool is_written = true;
    while (done < self->n && is_written) {
        const ssize_t n = write(self->descriptor, self->line + done, self->n - done);
        is_written = n > 0 || (n < 0 && errno == EINTR);
        if (n > 0) done += (size_t)n;
    }
    self->n = 0;
    return is_written;
}

/* Flushes incomplete lines. */
static void flush_all(void) {
    (void)fflush(stdout);
    (void)fflush(stderr);
    (void)flush_line(&to_out);
    (void)flush_line(&to_err);
}

static ssize_t write_prefixed(void *cookie, const char *text, size_t n) {
    prefixed *self = cookie;
    bool is_written = true; /* else the stream records the error */
    for (size_t i = 0; i < n && is_written; i++) {
        if (!self->is_inside) self->n = (size_t)snprintf(self->line, sizeof self->line, "%s", prefix);
        self->line[self->n++] = text[i];
        self->is_inside = text[i] != '\n';
        if (!self->is_inside || self->n == sizeof self->line) is_written = flush_line(self);
    }
    return is_written && (self->buffers || flush_line(self)) ? (ssize_t)n : 0;
}

/* ---- the terminal of `--ranks N` ---- */

#define TERMINAL "WEFT_TERMINAL" /* its path */

void weft_log_prefix_offer_terminal(void) {
    char path[256];
    if (isatty(STDOUT_FILENO) == 0 || ttyname_r(STDOUT_FILENO, path, sizeof path) != 0) (void)unsetenv(TERMINAL);
    else (void)setenv(TERMINAL, path, 1);
}

/* Redirects stdout to the offered terminal, if there is one. */
static bool take_terminal(void) {
    const char *path = getenv(TERMINAL);
    const int terminal = path == NULL ? -1 : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    const bool taken = terminal >= 0 && isatty(terminal) != 0 && dup2(terminal, STDOUT_FILENO) >= 0;
    if (terminal >= 0) (void)close(terminal);
    return taken;
}

/* Replaces the stream. Without memory its lines have no prefix. */
static void open_prefixed(prefixed *self, FILE **stream) {
    FILE *opened = fopencookie(self, "w", (cookie_io_functions_t){.write = write_prefixed});
    self->buffers = !weft_terminal_of(self->descriptor).is_one;
    if (opened == NULL) return;
    (void)setvbuf(opened, NULL, _IOLBF, 0);
    *stream = opened;
}

/* Enables the prefix for stdout and stderr of this process. Once. */
static void set_prefix(int32_t rank, bool speaks) {
    if (prefix[0] != '\0') return;
    (void)snprintf(prefix, sizeof prefix, "[%d] ", (int)rank);
    (void)fflush(stdout);
    if (rank != 0 || !take_terminal()) weft_terminal_deny();
    (void)atexit(flush_all);
    open_prefixed(&to_err, &stderr);
    if (!speaks) {
        (void)weft_services_log_level(WEFT_LOG_ERROR);
        (void)freopen("/dev/null", "w", stdout);
        return;
    }
    plain = stdout;
    open_prefixed(&to_out, &stdout);
}

FILE *weft_log_prefix_plain(void) {
    return plain == NULL ? stdout : plain;
}

/* ---- the world ---- */

static weft_world current = {.size = 1, .local_size = 1};
int32_t weft_world_planned_nodes = 1;

const weft_world *weft_world_get(void) {
    return &current;
}

/* Returns the processors of a rank. The local ranks share those of the process that started them, or of the machine. A
 * launcher that binds its ranks has divided them already: then each rank may run on few enough for all. */
static int32_t processors_of_a_rank(int32_t local_size) {
    const char *started = getenv(WEFT_STARTED), *at = started == NULL ? NULL : strchr(started, '/');
    const long shared = at != NULL ? strtol(at + 1, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
    const int32_t allowed = weft_services_processors();
    if (local_size == 1 || (allowed < shared && (int64_t)allowed * local_size <= shared)) return allowed;
    return allowed / local_size > 0 ? allowed / local_size : 1;
}

static void publish_world(void) {
    weft_host_world *shown = weft_services_world();
    shown->rank = current.rank;
    shown->size = current.size;
    shown->local_rank = current.local_rank;
    shown->local_size = current.local_size;
    shown->processors = processors_of_a_rank(current.local_size);
}

void weft_world_set(const weft_world *world) {
    current = *world;
    if (current.is_planned) {
        /* A single process. A rank's processors determine its memory: as if it ran here with the ranks of its node. */
        const int32_t on_each = current.size / weft_world_planned_nodes, per_node = on_each > 0 ? on_each : 1;
        weft_services_world()->planned = per_node;
        weft_services_world()->processors = processors_of_a_rank(per_node);
        return;
    }
    publish_world();
    if (current.size == 1) return;
    atomic_store(&weft_crash_where.rank, current.rank);
    weft_heartbeat_begin(current.rank);
    set_prefix(current.rank, current.rank == 0 || current.speaks);
}

weft_status weft_world_confirm(const weft_comm_info *info, weft_error *err) {
    if (info->rank != current.rank || info->size != current.size)
        return weft_error_set(err, WEFT_E_PEER,
                              "%s reports that this is rank %d of %d, and %s reports rank %d of %d: start the "
                              "ranks with the launcher of this communicator",
                              info->backend, (int)info->rank, (int)info->size,
                              current.launched_by[0] != '\0' ? current.launched_by : "the command line",
                              (int)current.rank, (int)current.size);
    if (info->local_size < 1 || info->local_size > info->size || info->local_rank < 0 ||
        info->local_rank >= info->local_size)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s reports that this is rank %d of the %d on this machine",
                              info->backend, (int)info->local_rank, (int)info->local_size);
    current.local_rank = info->local_rank;
    current.local_size = info->local_size;
    publish_world();
    return WEFT_OK;
}
