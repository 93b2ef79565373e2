/* host/launch/rank_verdict.c: diagnosis of the ranks that the watchdog observes (watchdog.h). */
#include "launch/watchdog.h"

#include "base/tree.h"
#include "base/words.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

enum {
    NAMED = 4,           /* ranks that a message describes individually */
    STOPPED_BY_USER = 75 /* exit status */
};

static bool can_resume;
static char checkpoints[PATH_MAX];

void weft_watchdog_resumes(bool resumes) {
    can_resume = resumes;
}

void weft_watchdog_output(const char *directory) {
    (void)snprintf(checkpoints, sizeof checkpoints, "%.*s/checkpoints", PATH_MAX - 20, directory);
}

void weft_watchdog_explain(char *out, size_t size, const char *why) {
    bool has = false;
    if (can_resume && weft_tree_has(&has, checkpoints, "step-", NULL) != WEFT_OK) has = false;
    (void)snprintf(out, size, "%s: the other ranks were stopped%s", why,
                   has ? "; --resume goes on from the newest checkpoint" : "");
}

static void say_place(char *out, size_t size, const weft_rank_view *rank) {
    weft_heartbeat_say_place(out, size, rank->evaluates, rank->step, rank->instruction, rank->text);
}

/* Describes a rank's end. A signal is not attributed to a plugin; the plugin call is printed only for an exit by itself
 * or an unknown end. */
static void say_end(char *out, size_t size, const weft_rank_view *rank) {
    const int32_t status = rank->status;
    const bool was_called = rank->call.what[0] != '\0';
    if (status >= 0 && WIFSIGNALED(status)) {
        weft_words_append(out, size, "died by signal %d", WTERMSIG(status));
    } else if (status >= 0 && WIFEXITED(status) && was_called) {
        weft_words_append(out, size, "was ended by %s in its %s, with status %d,", rank->call.who, rank->call.what,
                          WEXITSTATUS(status));
    } else if (status >= 0 && WIFEXITED(status)) {
        weft_words_append(out, size, "ended with status %d", WEXITSTATUS(status));
    } else {
        weft_words_append(out, size, "is gone without a word, as after kill -9 or when memory runs out,");
        if (was_called) weft_words_append(out, size, " while %s was in its %s,", rank->call.who, rank->call.what);
    }
}

bool weft_rank_has_failed(const weft_rank_view *rank) {
    if (rank->condition == WEFT_RANK_ENDED) return rank->status != 0 && rank->status != STOPPED_BY_USER;
    return rank->condition == WEFT_RANK_GONE;
}

/* Returns true if the rank has printed its failure, or a user stopped it: not reported unless other ranks do not stop.
 */
static bool is_known(const weft_rank_view *rank) {
    const int32_t status = rank->status;
    if (rank->condition == WEFT_RANK_ENDED) return true;
    if (status < 0 || !WIFSIGNALED(status)) return false;
    return WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGHUP;
}

static bool is_before(const weft_rank_view *a, const weft_rank_view *b) {
    return a->followed != b->followed ? b->followed != 0 : a->over_at < b->over_at;
}

/* Returns the rank that failed first: a launcher ends the others soon after, and peers of a dead rank fail, too. */
static const weft_rank_view *find_failed(const weft_rank_view *ranks, int32_t n) {
    const weft_rank_view *first = NULL;
    for (int32_t i = 0; i < n; i++)
        if (weft_rank_has_failed(&ranks[i]) && (first == NULL || is_before(&ranks[i], first))) first = &ranks[i];
    return first;
}

static int32_t count_ranks_in(const weft_rank_view *ranks, int32_t n, int32_t condition) {
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) found += ranks[i].condition == condition;
    return found;
}

static const weft_rank_view *first_rank_in(const weft_rank_view *ranks, int32_t n, int32_t condition) {
    for (int32_t i = 0; i < n; i++)
        if (ranks[i].condition == condition) return &ranks[i];
    return NULL;
}

static void say_failed(char *out, size_t size, const weft_rank_view *rank) {
    char place[256];
    say_place(place, sizeof place, rank);
    (void)snprintf(out, size, "rank %d ", (int)rank->rank);
    if (rank->condition == WEFT_RANK_ENDED) weft_words_append(out, size, "ended with status %d", (int)rank->status);
    else say_end(out, size, rank);
    weft_words_append(out, size, " %s", place);
}

static bool judge_failed(char *out, size_t size, const weft_rank_view *ranks, int32_t n, const weft_rank_view *rank,
                         const weft_watchdog_times *times) {
    const bool known = is_known(rank);
    const bool all_over = count_ranks_in(ranks, n, WEFT_RANK_ENDED) + count_ranks_in(ranks, n, WEFT_RANK_GONE) == n;
    if (known && (all_over || times->left < WEFT_WATCHDOG_SOON)) return false;
    if (!all_over && (times->left < times->settle || (rank->followed && times->left < WEFT_WATCHDOG_SETTLE)))
        return false;
    say_failed(out, size, rank);
    if (known) weft_words_append(out, size, ", and others did not follow");
    return true;
}

static bool judge_lost(char *out, size_t size, const weft_rank_view *ranks, int32_t n) {
    const weft_rank_view *rank = first_rank_in(ranks, n, WEFT_RANK_LOST);
    char place[256];
    if (rank == NULL) return false;
    say_place(place, sizeof place, rank);
    (void)snprintf(out, size, "the machine of rank %d is out of reach, where it was last seen %s", (int)rank->rank,
                   place);
    return true;
}

/* Reports stopped ranks. All of them stopped at once is a suspended job. */
static bool judge_stopped(char *out, size_t size, const weft_rank_view *ranks, int32_t n, int64_t patience) {
    const int64_t soon = patience < WEFT_WATCHDOG_SOON ? patience : WEFT_WATCHDOG_SOON;
    char place[256];
    if (count_ranks_in(ranks, n, WEFT_RANK_STOPPED) == n) return false;
    for (int32_t i = 0; i < n; i++) {
        if (ranks[i].condition != WEFT_RANK_STOPPED || ranks[i].stopped < soon) continue;
        say_place(place, sizeof place, &ranks[i]);
        (void)snprintf(out, size, "rank %d hangs: it has been stopped by a signal for %lld s, %s", (int)ranks[i].rank,
                       (long long)(ranks[i].stopped / 1000), place);
        return true;
    }
    return false;
}

static void say_rank(char *out, size_t size, const weft_rank_view *rank) {
    char place[256];
    say_place(place, sizeof place, rank);
    weft_words_append(out, size, "; rank %d ", (int)rank->rank);
    if (rank->condition == WEFT_RANK_UNBORN) weft_words_append(out, size, "has not begun");
    else if (rank->condition == WEFT_RANK_ENDED) weft_words_append(out, size, "has ended %s", place);
    else weft_words_append(out, size, "waits %s", place);
}

/* Reports a deadlock: each rank waits for others, and all are waiting. */
static bool judge_waiting(char *out, size_t size, const weft_rank_view *ranks, int32_t n, int64_t quiet,
                          int64_t patience) {
    const int32_t waiting = count_ranks_in(ranks, n, WEFT_RANK_WAITS);
    const int32_t absent = count_ranks_in(ranks, n, WEFT_RANK_UNBORN) + count_ranks_in(ranks, n, WEFT_RANK_ENDED);
    if (waiting == 0 || waiting + absent < n || quiet < patience) return false;
    (void)snprintf(out, size, "the ranks hang: nobody has gone on for %lld s and nobody computes",
                   (long long)(quiet / 1000));
    for (int32_t i = 0; i < n && i < NAMED; i++) say_rank(out, size, &ranks[i]);
    if (n > NAMED) weft_words_append(out, size, "; and %d more", (int)(n - NAMED));
    return true;
}

bool weft_watchdog_assess(char *out, size_t size, const weft_rank_view *ranks, int32_t n,
                          const weft_watchdog_times *times) {
    const weft_rank_view *failed = find_failed(ranks, n);
    if (failed != NULL) return judge_failed(out, size, ranks, n, failed, times);
    if (judge_lost(out, size, ranks, n)) return true;
    if (first_rank_in(ranks, n, WEFT_RANK_TRACED) != NULL) return false;
    return judge_stopped(out, size, ranks, n, times->patience) ||
           judge_waiting(out, size, ranks, n, times->quiet, times->patience);
}
