/* host/launch/find.c: see find.h. */
#include "launch/find.h"

#include "base/words.h"
#include "config/number.h"
#include "launch/own_launcher.h"
#include "plugin/note.h"
#include "plugin/search.h"

#include <stdlib.h>
#include <unistd.h>

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
    const char *named; /* [comm] plugin as written; NULL: unset */
    weft_noted *all;   /* every available communicator */
    size_t n;
} search;

/* ---- families ---- */

static const weft_noted *find_id(const search *self, const char *id) {
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->all[i].id, id) == 0) return &self->all[i];
    return NULL;
}

/* Returns whether the plugin belongs to the family: "mpi" for mpi-mpich and mpi-openmpi, unless a communicator mpi
 * exists. */
static bool in_family(const weft_noted *one, const char *family) {
    const size_t n = strlen(family);
    return strncmp(one->id, family, n) == 0 && one->id[n] == '-';
}

static bool is_path(const char *name) {
    return strchr(name, '/') != NULL;
}

/* Returns the requested family if no communicator was named, or the name is not a communicator's. */
static const char *family_of(const search *self) {
    if (self->named == NULL) return WEFT_RANKS_FAMILY;
    if (is_path(self->named) || find_id(self, self->named) != NULL) return NULL;
    return self->named;
}

static bool is_meant(const search *self, const weft_noted *one) {
    const char *family = family_of(self);
    if (family != NULL) return in_family(one, family);
    return strcmp(is_path(self->named) ? one->path : one->id, self->named) == 0;
}

/* ---- wrapping communicators ---- */

static const char *wrapped_name(const weft_noted *one) {
    const size_t n = sizeof WEFT_LAUNCH_AS - 1;
    return strncmp(one->launch, WEFT_LAUNCH_AS, n) == 0 ? one->launch + n : NULL;
}

/* Lists the forms in which a wrapper can be started, one entry each; out has capacity for all communicators. */
static size_t spread(weft_noted *out, const search *self, const weft_noted *wrapper) {
    const char *name = wrapped_name(wrapper);
    size_t n = 0;
    for (size_t i = 0; i < self->n; i++) {
        const weft_noted *one = &self->all[i];
        if (wrapped_name(one) != NULL || (strcmp(one->id, name) != 0 && !in_family(one, name))) continue;
        out[n] = *wrapper;
        memcpy(out[n].launch, one->launch, sizeof out->launch);
        memcpy(out[n].launched, one->launched, sizeof out->launched);
        memcpy(out[n].wraps, one->id, sizeof out->wraps);
        if (wrapper->reason[0] == '\0') memcpy(out[n].reason, one->reason, sizeof out->reason);
        n++;
    }
    if (n > 0) return n;
    out[0] = *wrapper;
    out[0].launch[0] = '\0';
    (void)snprintf(out[0].reason, sizeof out->reason, "it starts ranks as %s, and there is no such communicator", name);
    return 1;
}

/* Adds an entry for each communicator that a wrapper can be started as. */
static weft_status spread_wrappers(search *self, weft_error *err) {
    weft_noted *all = NULL;
    size_t n = 0, room = self->n;
    for (size_t i = 0; i < self->n; i++)
        if (wrapped_name(&self->all[i]) != NULL) room += self->n;
    if (room == self->n) return WEFT_OK;
    all = calloc(room, sizeof *all);
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of communicators");
    for (size_t i = 0; i < self->n; i++) {
        if (wrapped_name(&self->all[i]) != NULL) n += spread(all + n, self, &self->all[i]);
        else all[n++] = self->all[i];
    }
    free(self->all);
    self->all = all;
    self->n = n;
    return WEFT_OK;
}

/* ---- detection of a launcher ---- */

typedef struct place {
    const weft_noted *by;
    char rank_name[64], size_name[64];
    int64_t rank, size;
} place;

/* Reads the next pair of "A B C D"; false at the end. */
static bool next_pair(const char **list, place *out) {
    int n = 0;
    if (sscanf(*list, "%63s %63s%n", out->rank_name, out->size_name, &n) != 2) return false;
    *list += n;
    return true;
}

/* Returns whether both variables of one of its pairs are set. */
static bool was_launched(const weft_noted *by, place *out) {
    const char *list = by->launched;
    out->by = by;
    while (next_pair(&list, out))
        if (getenv(out->rank_name) != NULL && getenv(out->size_name) != NULL) return true;
    return false;
}

static weft_status read_place(place *self, weft_error *err) {
    const char *rank = getenv(self->rank_name), *size = getenv(self->size_name);
    if (weft_number_i64(&self->rank, rank) && weft_number_i64(&self->size, size) && self->size >= 1 &&
        self->size <= INT32_MAX && self->rank >= 0 && self->rank < self->size)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "the environment says %s=%.40s and %s=%.40s, which is no rank of a world: start the ranks "
                          "with their launcher, or unset both",
                          self->rank_name, rank, self->size_name, size);
}

/* Finds this process's rank. by NULL: no launcher started this process. The configured communicator has priority over
 * others. */
static weft_status find_place(const search *self, place *out, weft_error *err) {
    for (int meant = 1; meant >= 0; meant--)
        for (size_t i = 0; i < self->n; i++)
            if (is_meant(self, &self->all[i]) == (meant == 1) && (meant == 1 || self->all[i].wraps[0] == '\0') &&
                was_launched(&self->all[i], out))
                return read_place(out, err);
    memset(out, 0, sizeof *out);
    return WEFT_OK;
}

/* ---- starting ranks ---- */

/* Returns the reason why the communicator's ranks cannot be started here; NULL: they can. */
static const char *find_hindrance(const weft_noted *one, char *text, size_t size) {
    const int program = (int)strcspn(one->launch, " ");
    if (one->reason[0] != '\0') return one->reason;
    if (one->launch[0] == '\0') return "it says no command that starts ranks";
    if (weft_launch_is_own(one->launch)) return NULL;
    (void)snprintf(text, size, "%.*s", program, one->launch);
    if (access(text, X_OK) == 0) return NULL;
    (void)snprintf(text, size, "there is no %.*s", program, one->launch);
    return text;
}

/* Returns the first communicator that can start ranks, or NULL, with the reasons against the others in `why`. */
static const weft_noted *find_starter(const search *self, char *why, size_t size) {
    const weft_noted *found = NULL;
    for (size_t i = 0; i < self->n; i++) {
        const weft_noted *one = &self->all[i];
        char text[600];
        const char *reason = NULL;
        if (!is_meant(self, one)) continue;
        reason = found != NULL ? "it comes later" : find_hindrance(one, text, sizeof text);
        if (reason == NULL) found = one;
        else weft_words_append(why, size, "%s%s: %.400s", why[0] == '\0' ? "" : "; ", one->id, reason);
    }
    return found;
}

/* Sets the error for a family without members. */
static weft_status no_member(const search *self, const char *family, weft_error *err) {
    char all[600] = "";
    for (size_t i = 0; i < self->n; i++)
        if (i == 0 || strcmp(self->all[i].id, self->all[i - 1].id) != 0)
            weft_words_append(all, sizeof all, "%s%s", i == 0 ? "" : ", ", self->all[i].id);
    if (strcmp(family, WEFT_RANKS_FAMILY) != 0)
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "is no communicator and no family of some; there are: %s.%s",
                                  all[0] == '\0' ? "none" : all, weft_search_built_by("comm", family));
    return weft_error_set(err, WEFT_E_USER,
                          "there is no communicator %s-* that could start ranks: install an MPI (Debian: mpich and "
                          "libmpich-dev, or openmpi-bin and libopenmpi-dev) and build again, or say which in [comm] "
                          "plugin",
                          family);
}

static weft_status no_starter(const search *self, const char *why, weft_error *err) {
    const char *family = family_of(self);
    if (why[0] == '\0' && family != NULL) return no_member(self, family, err);
    if (family == NULL)
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "cannot start ranks (%s): name another, or start them with its launcher", why);
    return weft_error_set(err, WEFT_E_USER,
                          "no communicator of the family %s can start ranks (%s): install what is missing (Debian: "
                          "mpich, or openmpi-bin), or start them with a launcher of your own",
                          family, why);
}

/* ---- result ---- */

/* Returns whether the command runs on several ranks. */
static bool takes_ranks(void) {
    return wanted.use == WEFT_RANKS_TRAINED || wanted.use == WEFT_RANKS_OFFERED;
}

static void take_place(weft_world *out, const place *at) {
    out->rank = out->local_rank = (int32_t)at->rank;
    out->size = out->local_size = (int32_t)at->size;
    (void)snprintf(out->launched_by, sizeof out->launched_by, "%s", at->rank_name);
}

/* Joins the world as a rank that a launcher started. */
static weft_status join_place(const search *self, weft_launch *out, const place *at, weft_error *err) {
    const char *family = family_of(self);
    take_place(&out->world, at);
    if (!takes_ranks())
        return weft_error_set(err, WEFT_E_USER,
                              "this command runs on one rank, and it is rank %lld of the %lld that a launcher started "
                              "(%s): start it alone",
                              (long long)at->rank, (long long)at->size, at->rank_name);
    if (wanted.use == WEFT_RANKS_TRAINED && wanted.asked > 0 && wanted.asked != at->size)
        return weft_error_set(err, WEFT_E_PEER,
                              "--ranks asks for %d, and the launcher started %lld (%s): give both the same number",
                              (int)wanted.asked, (long long)at->size, at->size_name);
    if (!is_meant(self, at->by))
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
static const char *those_of_several(const search *self, char *text, size_t size) {
    (void)snprintf(text, size, "%s", WEFT_RANKS_FAMILY);
    for (size_t i = 0; i < self->n; i++) {
        const weft_noted *one = &self->all[i];
        if (one->launch[0] != '\0' && one->reason[0] == '\0' && wrapped_name(one) == NULL && one->wraps[0] == '\0' &&
            !in_family(one, WEFT_RANKS_FAMILY))
            weft_words_append(text, size, ", or to %s", one->id);
    }
    return text;
}

/* Prepares to launch ranks, or fails. */
static weft_status launch_or_refuse(const search *self, weft_launch *out, weft_error *err) {
    char why[1000] = "";
    const weft_noted *by = NULL;
    if (getenv(WEFT_STARTED) != NULL)
        return weft_error_set(err, WEFT_E_SYSTEM,
                              "this process was started as one of %d ranks, and its launcher told it no rank: none of "
                              "the variables that the communicator knows is set",
                              (int)wanted.asked);
    if (self->named != NULL && strcmp(self->named, "self") == 0)
        return weft_config_reject(self->config, "comm", "plugin", err,
                                  "is a world of one rank, and --ranks asks for %d: take it out, or set it to %s",
                                  (int)wanted.asked, those_of_several(self, why, sizeof why));
    by = find_starter(self, why, sizeof why);
    if (by == NULL) return no_starter(self, why, err);
    out->must_launch = true;
    out->world.size = wanted.asked;
    (void)snprintf(out->launch, sizeof out->launch, "%s", by->launch);
    if (family_of(self) != NULL)
        (void)snprintf(out->why, sizeof out->why, "[comm] plugin = %s is %s: its launcher is there%s%.300s%s",
                       family_of(self), by->id, why[0] == '\0' ? "" : " (", why, why[0] == '\0' ? "" : ")");
    return WEFT_OK;
}

/* Returns whether the named communicator wraps others. */
static bool is_wrapper(const search *self) {
    for (size_t i = 0; i < self->n; i++)
        if (self->all[i].wraps[0] != '\0' && is_meant(self, &self->all[i])) return true;
    return false;
}

/* Runs one rank, even if a communicator was requested. */
static weft_status stay_alone(const search *self, weft_launch *out, weft_error *err) {
    const char *family = self->named == NULL ? NULL : family_of(self);
    char why[1000] = "";
    const weft_noted *by = NULL;
    if (self->named != NULL && (family != NULL || is_wrapper(self))) by = find_starter(self, why, sizeof why);
    if (by != NULL) memcpy(out->world.wrapped, by->wraps, sizeof out->world.wrapped);
    if (family == NULL) return WEFT_OK;
    if (by == NULL && why[0] == '\0' && strcmp(family, WEFT_RANKS_FAMILY) != 0)
        return WEFT_OK; /* unknown family too: the plugin search reports it with all searched paths */
    if (by == NULL) {
        const weft_status status = no_starter(self, why, err);
        if (err != NULL) weft_words_append(err->text, sizeof err->text, ". One rank needs none: [comm] plugin = self");
        return status;
    }
    (void)snprintf(out->world.comm, sizeof out->world.comm, "%s", by->id);
    return WEFT_OK;
}

/* Returns whether a launcher's single rank is still a rank: if several were requested, which then fails, or if its
 * communicator was requested. */
static bool joins_alone(const search *self, const place *at) {
    if (!takes_ranks()) return false;
    return (wanted.use == WEFT_RANKS_TRAINED && wanted.asked > 1) || (self->named != NULL && is_meant(self, at->by));
}

/* Launches ranks if possible. */
static weft_status launch_if_possible(const search *self, weft_launch *out, const place *at, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    char others[300];
    if (at->by != NULL) {
        (void)snprintf(out->why, sizeof out->why, "a launcher has started one rank alone (%s = 1)", at->size_name);
    } else if (self->named != NULL && strcmp(self->named, "self") == 0) {
        (void)snprintf(out->why, sizeof out->why,
                       "[comm] plugin = self is a world of one rank; take it out, or set it to %s",
                       those_of_several(self, others, sizeof others));
    } else {
        weft_status status = launch_or_refuse(self, out, &why);
        if (status == WEFT_OK) return WEFT_OK;
        if (getenv(WEFT_STARTED) != NULL) return weft_error_set(err, status, "%s", why.text);
        (void)snprintf(out->why, sizeof out->why, "%.500s", why.text);
    }
    return stay_alone(self, out, err);
}

static weft_status join_or_launch(const search *self, weft_launch *out, weft_error *err) {
    place at;
    weft_status status = find_place(self, &at, err);
    if (status != WEFT_OK) return status;
    if (at.by != NULL && (at.size > 1 || joins_alone(self, &at))) return join_place(self, out, &at, err);
    if (wanted.use == WEFT_RANKS_TRAINED && wanted.asked > 1) return launch_or_refuse(self, out, err);
    if (wanted.use == WEFT_RANKS_OFFERED) return launch_if_possible(self, out, &at, err);
    status = stay_alone(self, out, err);
    out->world.is_alone = wanted.use == WEFT_RANKS_NONE;
    if (wanted.use == WEFT_RANKS_PLANNED && wanted.asked > 0) {
        out->world.size = wanted.asked;
        out->world.is_planned = true;
    }
    return status;
}

/* Reads [comm] plugin before it is declared. */
static weft_status read_name(search *self, weft_error *err) {
    if (!weft_config_has_key(self->config, "comm", "plugin")) return WEFT_OK;
    return weft_config_plugin(self->config, &self->named, "comm", "self", err);
}

static weft_status add_path(search *self, const weft_plugins *plugins, weft_error *err) {
    weft_noted *grown = NULL;
    if (self->named == NULL || !is_path(self->named)) return WEFT_OK;
    grown = realloc(self->all, (self->n + 1) * sizeof *grown);
    if (grown == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of communicators");
    self->all = grown;
    weft_plugin_noted(plugins, &self->all[self->n++], "", self->named);
    return WEFT_OK;
}

weft_status weft_launch_find(weft_launch *out, weft_config *config, const weft_plugins *plugins, weft_error *err) {
    search all = {.config = config};
    weft_status status = read_name(&all, err);
    memset(out, 0, sizeof *out);
    out->world.size = out->world.local_size = 1;
    if (status == WEFT_OK) status = weft_plugins_noted(plugins, &all.all, &all.n, "comm", err);
    if (status == WEFT_OK) status = add_path(&all, plugins, err);
    if (status == WEFT_OK) status = spread_wrappers(&all, err);
    if (status == WEFT_OK) status = join_or_launch(&all, out, err);
    free(all.all);
    return status;
}
