/* host/launch/find.c: see find.h. */
#include "launch/find.h"

#include "base/alloc.h"
#include "base/text.h"
#include "config/number.h"
#include "launch/rendezvous.h"
#include "plugin/load.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_START = 127 }; /* the exit status of shells */

/* Starts one rank, which ends with its launcher. */
static bool start_rank(int32_t rank, int32_t n, const char *program, char *const *words) {
    const pid_t launcher = getpid(), pid = fork();
    char text[2][16];
    if (pid != 0) return pid > 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    (void)snprintf(text[0], sizeof text[0], "%d", (int)rank);
    (void)snprintf(text[1], sizeof text[1], "%d", (int)n);
    (void)setenv(WEFT_OWN_RANK, text[0], 1);
    (void)setenv(WEFT_OWN_SIZE, text[1], 1);
    (void)setenv(WEFT_RENDEZVOUS, WEFT_RENDEZVOUS_PARENT, 1);
    (void)execv(program, words);
    (void)fprintf(stderr, "weft: rank %d cannot be started: %s\n", (int)rank, strerror(errno));
    _exit(CANNOT_START);
}

int weft_own_launcher_run(int32_t n, const char *program, char *const *words) {
    int32_t started = 0;
    int status = 0, ended = 0;
    (void)signal(SIGCHLD, SIG_DFL);
    while (started < n && start_rank(started, n, program, words)) started++;
    if (started < n) { /* started ranks end with this process */
        (void)fprintf(stderr, "weft: only %d of %d ranks could be started: %s\n", (int)started, (int)n,
                      strerror(errno));
        return CANNOT_START;
    }
    while (n > 0) {
        const pid_t pid = waitpid(-1, &ended, 0);
        if (pid < 0 && errno != EINTR) break;
        n -= pid > 0;
        if (pid > 0 && status == 0) status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    }
    return status;
}

static struct {
    weft_launch_use use;
    int32_t asked;
} wanted;

void weft_launch_want(weft_launch_use use, int32_t asked) {
    wanted.use = use;
    wanted.asked = asked;
}

typedef struct search {
    weft_config *config;
    const char *named;        /* [comm] plugin as written; NULL: unset */
    const char *family;       /* the requested family; NULL: `named` is a path or the id of a communicator */
    weft_plugin_summary *all; /* every available communicator */
    size_t n;
} search;

/* ---- families ---- */

/* Returns whether the plugin belongs to the family: "mpi" for mpi-mpich and mpi-openmpi, unless a communicator mpi
 * exists. */
static bool in_family(const weft_plugin_summary *one, const char *family) {
    const size_t n = strlen(family);
    return strncmp(one->id, family, n) == 0 && one->id[n] == '-';
}

static bool is_requested(const search *self, const weft_plugin_summary *one) {
    if (self->family != NULL) return in_family(one, self->family);
    return strcmp(strchr(self->named, '/') != NULL ? one->path : one->id, self->named) == 0;
}

/* ---- wrapping communicators ---- */

static const char *wrapped_name(const weft_plugin_summary *one) {
    const size_t n = sizeof WEFT_LAUNCH_AS - 1;
    return strncmp(one->launch, WEFT_LAUNCH_AS, n) == 0 ? one->launch + n : NULL;
}

/* Replaces each wrapper by one entry for each communicator that it can be started as. */
static void expand_wrappers(search *self) {
    weft_plugin_summary *all = weft_alloc(self->n * (self->n + 1), sizeof *all);
    size_t n = 0;
    for (size_t w = 0; w < self->n; w++) {
        const weft_plugin_summary *wrapper = &self->all[w];
        const char *name = wrapped_name(wrapper);
        const size_t before = n;
        for (size_t i = 0; name != NULL && i < self->n; i++) {
            const weft_plugin_summary *one = &self->all[i];
            if (wrapped_name(one) != NULL || (strcmp(one->id, name) != 0 && !in_family(one, name))) continue;
            all[n] = *wrapper;
            memcpy(all[n].launch, one->launch, sizeof one->launch);
            memcpy(all[n].launched, one->launched, sizeof one->launched);
            memcpy(all[n].wraps, one->id, sizeof one->wraps);
            if (wrapper->reason[0] == '\0') memcpy(all[n].reason, one->reason, sizeof one->reason);
            n++;
        }
        if (n > before) continue;
        all[n] = *wrapper;
        if (name != NULL) {
            all[n].launch[0] = '\0';
            (void)snprintf(all[n].reason, sizeof all->reason,
                           "it starts ranks as %s, and there is no such communicator", name);
        }
        n++;
    }
    free(self->all);
    self->all = all;
    self->n = n;
}

/* ---- detection of a launcher ---- */

typedef struct launched_rank {
    const weft_plugin_summary *by;
    char rank_name[64], size_name[64];
    int64_t rank, size;
} launched_rank;

/* Reads the rank from the first of its pairs, "A B C D", with both variables set. by NULL: there is none. */
static weft_status read_rank(launched_rank *out, const weft_plugin_summary *by, weft_error *err) {
    const char *list = by->launched, *rank = NULL, *size = NULL;
    int n = 0;
    memset(out, 0, sizeof *out);
    for (; sscanf(list, "%63s %63s%n", out->rank_name, out->size_name, &n) == 2; list += n) {
        rank = getenv(out->rank_name);
        size = getenv(out->size_name);
        if (rank == NULL || size == NULL) continue;
        out->by = by;
        if (weft_number_i64(&out->rank, rank) && weft_number_i64(&out->size, size) && out->size >= 1 &&
            out->size <= INT32_MAX && out->rank >= 0 && out->rank < out->size)
            return WEFT_OK;
        return weft_error_set(err, WEFT_E_USER,
                              "the environment has %s=%.40s and %s=%.40s, which is no rank of a world: start the ranks "
                              "with their launcher, or unset both",
                              out->rank_name, rank, out->size_name, size);
    }
    return WEFT_OK;
}

/* Finds this process's rank. by NULL: no launcher started this process. The configured communicator has priority over
 * others. */
static weft_status find_rank(const search *self, launched_rank *out, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    for (int requested = 1; requested >= 0; requested--)
        for (size_t i = 0; i < self->n && out->by == NULL; i++)
            if (is_requested(self, &self->all[i]) == (requested == 1) &&
                (requested == 1 || self->all[i].wraps[0] == '\0'))
                status = read_rank(out, &self->all[i], err);
    return status;
}

/* ---- starting ranks ---- */

/* Returns the reason why the communicator's ranks cannot be started here; NULL: they can. */
static const char *find_obstacle(const weft_plugin_summary *one, char *text, size_t size) {
    const int program = (int)strcspn(one->launch, " ");
    if (one->reason[0] != '\0') return one->reason;
    if (one->launch[0] == '\0') return "it has no command that starts ranks";
    if (strcmp(one->launch, WEFT_LAUNCH_BY_HOST) == 0) return NULL;
    (void)snprintf(text, size, "%.*s", program, one->launch);
    if (access(text, X_OK) == 0) return NULL;
    (void)snprintf(text, size, "there is no %.*s", program, one->launch);
    return text;
}

/* Returns the first communicator that can start ranks, or NULL, with the reasons against the others in `why`. */
static const weft_plugin_summary *find_starter(const search *self, char *why, size_t size) {
    const weft_plugin_summary *found = NULL;
    for (size_t i = 0; i < self->n; i++) {
        const weft_plugin_summary *one = &self->all[i];
        char text[600];
        const char *reason = NULL;
        if (!is_requested(self, one)) continue;
        reason = found != NULL ? "it comes later" : find_obstacle(one, text, sizeof text);
        if (reason == NULL) found = one;
        else weft_words_append(why, size, "%s%s: %.400s", why[0] == '\0' ? "" : "; ", one->id, reason);
    }
    return found;
}

/* Fails because no communicator can start ranks. why: the reasons against each; "": the family has no members. */
static weft_status reject_start(const search *self, const char *why, weft_error *err) {
    const char *family = self->family;
    char all[600] = "";
    if (family == NULL)
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "cannot start ranks (%s): name another, or start them with its launcher", why);
    if (why[0] != '\0')
        return weft_error_set(err, WEFT_E_USER,
                              "no communicator of the family %s can start ranks (%s): install what is missing (Debian: "
                              "mpich, or openmpi-bin), or use a launcher of your own",
                              family, why);
    if (strcmp(family, WEFT_RANKS_FAMILY) == 0)
        return weft_error_set(err, WEFT_E_USER,
                              "there is no communicator %s-* that could start ranks: install an MPI (Debian: mpich and "
                              "libmpich-dev, or openmpi-bin and libopenmpi-dev) and build again, or set [comm] plugin",
                              family);
    for (size_t i = 0; i < self->n; i++)
        if (i == 0 || strcmp(self->all[i].id, self->all[i - 1].id) != 0)
            weft_words_append(all, sizeof all, "%s%s", i == 0 ? "" : ", ", self->all[i].id);
    return weft_config_reject(self->config, "comm", "plugin", err,
                              "is no communicator and no family of some; there are: %s.%s",
                              all[0] == '\0' ? "none" : all, weft_plugin_built_by("comm", family));
}

/* ---- result ---- */

/* Returns whether the command runs on several ranks. */
static bool takes_ranks(void) {
    return wanted.use == WEFT_RANKS_TRAINED || wanted.use == WEFT_RANKS_OFFERED;
}

/* Joins the world as a rank that a launcher started. */
static weft_status join_rank(const search *self, weft_launch *out, const launched_rank *at, weft_error *err) {
    const char *family = self->family;
    out->world.rank = out->world.local_rank = (int32_t)at->rank;
    out->world.size = out->world.local_size = (int32_t)at->size;
    (void)snprintf(out->world.launched_by, sizeof out->world.launched_by, "%s", at->rank_name);
    if (!takes_ranks())
        return weft_error_set(err, WEFT_E_USER,
                              "this command runs on one rank, and it is rank %lld of the %lld that a launcher started "
                              "(%s): start it without a launcher",
                              (long long)at->rank, (long long)at->size, at->rank_name);
    if (wanted.use == WEFT_RANKS_TRAINED && wanted.asked > 0 && wanted.asked != at->size)
        return weft_error_set(err, WEFT_E_PEER,
                              "--ranks is %d, but the launcher started %lld (%s). Fix: use the same number",
                              (int)wanted.asked, (long long)at->size, at->size_name);
    if (!is_requested(self, at->by))
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "cannot join the %lld ranks that the launcher of %s started (%s): take it out, or "
                                  "set it to %s",
                                  (long long)at->size, at->by->id, at->rank_name, at->by->id);
    memcpy(out->world.wrapped, at->by->wraps, sizeof out->world.wrapped);
    if (family == NULL) return WEFT_OK;
    (void)snprintf(out->world.comm, sizeof out->world.comm, "%s", at->by->id);
    if (getenv(WEFT_STARTED) == NULL && at->rank == 0)
        (void)snprintf(out->why, sizeof out->why, "[comm] plugin = %s is %s: its launcher set %s", family, at->by->id,
                       at->rank_name);
    return WEFT_OK;
}

/* Lists the communicators for several ranks, "mpi, or to nccl", for a user who has named one for one rank. */
static const char *list_several(const search *self, char *text, size_t size) {
    (void)snprintf(text, size, "%s", WEFT_RANKS_FAMILY);
    for (size_t i = 0; i < self->n; i++) {
        const weft_plugin_summary *one = &self->all[i];
        if (one->launch[0] != '\0' && one->reason[0] == '\0' && wrapped_name(one) == NULL && one->wraps[0] == '\0' &&
            !in_family(one, WEFT_RANKS_FAMILY))
            weft_words_append(text, size, ", or to %s", one->id);
    }
    return text;
}

/* Prepares to launch ranks, or fails. */
static weft_status launch_ranks(const search *self, weft_launch *out, weft_error *err) {
    char why[1000] = "";
    const weft_plugin_summary *by = NULL;
    if (getenv(WEFT_STARTED) != NULL)
        return weft_error_set(err, WEFT_E_SYSTEM,
                              "this process was started as one of %d ranks, and its launcher set no rank: none of "
                              "the variables that the communicator reads is set",
                              (int)wanted.asked);
    if (self->named != NULL && strcmp(self->named, "self") == 0)
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "is a world of one rank, but --ranks is %d. Fix: remove it, or set it to %s",
                                  (int)wanted.asked, list_several(self, why, sizeof why));
    by = find_starter(self, why, sizeof why);
    if (by == NULL) return reject_start(self, why, err);
    out->must_launch = true;
    out->world.size = wanted.asked;
    (void)snprintf(out->launch, sizeof out->launch, "%s", by->launch);
    if (self->family != NULL)
        (void)snprintf(out->why, sizeof out->why, "[comm] plugin = %s is %s: its launcher is there%s%.300s%s",
                       self->family, by->id, why[0] == '\0' ? "" : " (", why, why[0] == '\0' ? "" : ")");
    return WEFT_OK;
}

/* Runs one rank, even if a communicator was requested. */
static weft_status run_one_rank(const search *self, weft_launch *out, weft_error *err) {
    const char *family = self->named == NULL ? NULL : self->family;
    char why[1000] = "";
    const weft_plugin_summary *by = NULL;
    bool is_wrapper = false; /* the named communicator wraps others */
    for (size_t i = 0; self->named != NULL && i < self->n; i++)
        is_wrapper = is_wrapper || (self->all[i].wraps[0] != '\0' && is_requested(self, &self->all[i]));
    if (family != NULL || is_wrapper) by = find_starter(self, why, sizeof why);
    if (by != NULL) memcpy(out->world.wrapped, by->wraps, sizeof out->world.wrapped);
    if (family == NULL) return WEFT_OK;
    if (by == NULL && why[0] == '\0' && strcmp(family, WEFT_RANKS_FAMILY) != 0)
        return WEFT_OK; /* unknown family too: the plugin search reports it with all searched paths */
    if (by == NULL) {
        const weft_status status = reject_start(self, why, err);
        if (err != NULL)
            weft_words_append(err->text, sizeof err->text, ". One rank needs no communicator: [comm] plugin = self");
        return status;
    }
    (void)snprintf(out->world.comm, sizeof out->world.comm, "%s", by->id);
    return WEFT_OK;
}

/* Launches ranks if possible. */
static weft_status launch_if_possible(const search *self, weft_launch *out, const launched_rank *at, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    char others[300];
    if (at->by != NULL) {
        (void)snprintf(out->why, sizeof out->why, "a launcher has started only one rank (%s = 1)", at->size_name);
    } else if (self->named != NULL && strcmp(self->named, "self") == 0) {
        (void)snprintf(out->why, sizeof out->why,
                       "[comm] plugin = self is a world of one rank; take it out, or set it to %s",
                       list_several(self, others, sizeof others));
    } else {
        weft_status status = launch_ranks(self, out, &why);
        if (status == WEFT_OK) return WEFT_OK;
        if (getenv(WEFT_STARTED) != NULL) return weft_error_set(err, status, "%s", why.text);
        (void)snprintf(out->why, sizeof out->why, "%.500s", why.text);
    }
    return run_one_rank(self, out, err);
}

static weft_status join_or_launch(const search *self, weft_launch *out, weft_error *err) {
    const bool needs_several = wanted.use == WEFT_RANKS_TRAINED && wanted.asked > 1;
    launched_rank at;
    weft_status status = find_rank(self, &at, err);
    if (status != WEFT_OK) return status;
    /* A launcher's single rank is still a rank if several were requested, which then fails, or its communicator. */
    if (at.by != NULL &&
        (at.size > 1 || needs_several || (takes_ranks() && self->named != NULL && is_requested(self, at.by))))
        return join_rank(self, out, &at, err);
    if (needs_several) return launch_ranks(self, out, err);
    if (wanted.use == WEFT_RANKS_OFFERED) return launch_if_possible(self, out, &at, err);
    status = run_one_rank(self, out, err);
    out->world.is_alone = wanted.use == WEFT_RANKS_NONE;
    if (wanted.use == WEFT_RANKS_PLANNED && wanted.asked > 0) {
        out->world.size = wanted.asked;
        out->world.is_planned = true;
    }
    return status;
}

weft_status weft_launch_find(weft_launch *out, weft_config *config, const weft_plugins *plugins, weft_error *err) {
    search all = {.config = config};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->world.size = out->world.local_size = 1;
    if (weft_config_has_key(config, "comm", "plugin")) /* not declared yet */
        status = weft_config_plugin(config, &all.named, "comm", "self", err);
    if (status == WEFT_OK) status = weft_plugins_summarize(plugins, &all.all, &all.n, "comm", err);
    if (status != WEFT_OK) return status;
    if (all.named != NULL && strchr(all.named, '/') != NULL) {
        all.all = weft_realloc(all.all, all.n + 1, sizeof *all.all);
        weft_plugin_summarize(plugins, &all.all[all.n++], "", all.named);
    }
    all.family = all.named == NULL ? WEFT_RANKS_FAMILY : strchr(all.named, '/') != NULL ? NULL : all.named;
    for (size_t i = 0; all.named != NULL && i < all.n; i++)
        if (strcmp(all.all[i].id, all.named) == 0) all.family = NULL;
    expand_wrappers(&all);
    status = join_or_launch(&all, out, err);
    free(all.all);
    return status;
}
