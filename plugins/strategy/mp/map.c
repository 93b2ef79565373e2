/* map.c: parses the user's device_map: `embed,layers.0-12 = 0; layers.13-21,head = 1`.
 *
 * An entry assigns names to a rank. A name is a segment's name, or its first dot-separated components: layers.3 matches
 * layers.3.attn and layers.3.mlp. A component may be a range of numbers. Each segment must be assigned exactly once. */
#include "mp.h"

#include <stdlib.h>

enum { NAME = 160 }; /* maximum length of a name including its terminator */

typedef struct reader {
    const weft_strategy_job *job;
    int32_t *owners;
    const char **placed_by; /* [n_segments] the entry that assigned it */
    weft_error *err;
} reader;

/* A substring of the map without surrounding blanks. */
typedef struct piece {
    const char *at;
    int n;
} piece;

static piece trimmed(const char *at, int n) {
    piece out = {at, n};
    while (out.n > 0 && (*out.at == ' ' || *out.at == '\t')) {
        out.at++;
        out.n--;
    }
    while (out.n > 0 && (out.at[out.n - 1] == ' ' || out.at[out.n - 1] == '\t')) out.n--;
    return out;
}

/* Returns the substring up to the sign or the end; *rest: the text after the sign. */
static piece cut_at(piece from, char sign, piece *rest) {
    const char *end = from.n > 0 ? (const char *)memchr(from.at, sign, (size_t)from.n) : NULL;
    const int n = end == NULL ? from.n : (int)(end - from.at);
    rest->at = from.at + n + (end != NULL);
    rest->n = from.n - n - (end != NULL);
    return trimmed(from.at, n);
}

/* Parses an integer; -1 for other text. */
static int32_t number_of(piece text) {
    int32_t value = 0;
    int i;
    if (text.n < 1 || text.n > 6) return -1;
    for (i = 0; i < text.n; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return -1;
        value = value * 10 + (text.at[i] - '0');
    }
    return value;
}

static int range_of(piece part, int32_t *first, int32_t *last) {
    piece rest;
    const piece low = cut_at(part, '-', &rest);
    *first = number_of(low);
    *last = number_of(trimmed(rest.at, rest.n));
    return *first >= 0 && *last >= 0;
}

static int part_matches(piece part, piece of) {
    int32_t first, last;
    const int32_t number = number_of(of);
    if (range_of(part, &first, &last)) return number >= first && number <= last;
    return part.n == of.n && memcmp(part.at, of.at, (size_t)of.n) == 0;
}

/* 1: the name matches the segment; 2: it would be a part of the segment; 0: no match. */
static int matches(piece name, const char *segment) {
    piece of = {segment, (int)strlen(segment)};
    while (name.n > 0 && of.n > 0)
        if (!part_matches(cut_at(name, '.', &name), cut_at(of, '.', &of))) return 0;
    return name.n > 0 ? 2 : 1;
}

/* ---- error messages ---- */

/* Lists the segments in short form: consecutive numbers as a range, with each suffix once. */
static void list_names(const weft_strategy_job *job, char *out, size_t size) {
    size_t n = 0;
    int32_t s, t, last;
    for (s = 0; s < job->n_segments && n < size; s++) {
        const char *name = weft_job_segment(job, s)->name, *digits = name + strcspn(name, "0123456789");
        const size_t stem = (size_t)(digits - name);
        for (t = s, last = atoi(digits); *digits != '\0' && t + 1 < job->n_segments; t++) {
            const char *next = weft_job_segment(job, t + 1)->name;
            if (strncmp(next, name, stem) != 0 || next[stem] < '0' || next[stem] > '9') break;
            last = atoi(next + stem);
        }
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", s == 0 ? "" : ", ", *digits ? (int)stem : (int)strlen(name),
                              name);
        if (*digits == '\0') continue;
        if (n < size) n += (size_t)snprintf(out + n, size - n, "%d-%d", atoi(digits), (int)last);
        s = t;
    }
}

static int smallest(int a, int b, int c) {
    const int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edit distance of the two. */
static int distance(piece a, piece b) {
    int row[NAME + 1], i, j;
    if (a.n > NAME || b.n > NAME) return NAME;
    for (j = 0; j <= b.n; j++) row[j] = j;
    for (i = 1; i <= a.n; i++) {
        int corner = row[0];
        row[0] = i;
        for (j = 1; j <= b.n; j++) {
            const int above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1, corner + (a.at[i - 1] != b.at[j - 1]));
            corner = above;
        }
    }
    return row[b.n];
}

/* Sums the edit distances of the components of two names; NAME if a component differs too much or their numbers
 * differ. */
static int apart(piece name, piece of) {
    int sum = 0;
    while (name.n > 0 && of.n > 0) {
        const piece part = cut_at(name, '.', &name);
        const int letters = distance(part, cut_at(of, '.', &of));
        if (letters > part.n / 3 + 1) return NAME;
        sum += letters;
    }
    return name.n > 0 || of.n > 0 ? NAME : sum;
}

/* Returns the closest segment name or name prefix, the last one of several; n 0 if all differ too much. */
static piece nearest(const weft_strategy_job *job, piece name) {
    piece best = {"", 0};
    int least = NAME - 1, i;
    int32_t s;
    for (s = 0; s < job->n_segments; s++) {
        const char *segment = weft_job_segment(job, s)->name;
        for (i = 1; i <= (int)strlen(segment); i++) {
            const piece candidate = {segment, i};
            if (segment[i] != '.' && segment[i] != '\0') continue;
            if (apart(name, candidate) > least) continue;
            best = candidate;
            least = apart(name, candidate);
        }
    }
    return best;
}

/* Returns the segment's component that follows the name, which is its prefix. */
static piece part_behind(piece name, const char *segment) {
    piece of = {segment, (int)strlen(segment)};
    while (name.n > 0) {
        cut_at(name, '.', &name);
        cut_at(of, '.', &of);
    }
    return cut_at(of, '.', &of);
}

/* Returns the longest prefix of a name that segments share, if words rather than numbers follow it; n 0 without one. */
static piece known_part(const weft_strategy_job *job, piece name) {
    int32_t s;
    while (name.n > 0) {
        while (name.n > 0 && name.at[name.n - 1] != '.') name.n--;
        name.n -= name.n > 0; /* the dot */
        for (s = 0; s < job->n_segments && name.n > 0; s++) {
            const char *segment = weft_job_segment(job, s)->name;
            if (matches(name, segment) == 1 && number_of(part_behind(name, segment)) < 0) return name;
        }
    }
    return name;
}

/* Lists the words that follow a prefix, without duplicates. */
static void list_parts(const weft_strategy_job *job, piece beginning, char *out, size_t size) {
    size_t n = 0;
    int32_t s, before;
    for (s = 0; s < job->n_segments && n < size; s++) {
        const char *segment = weft_job_segment(job, s)->name;
        const piece part = part_behind(beginning, segment);
        if (matches(beginning, segment) != 1) continue;
        for (before = 0; before < s; before++) {
            const char *other = weft_job_segment(job, before)->name;
            const piece seen = part_behind(beginning, other);
            if (matches(beginning, other) == 1 && part_matches(seen, part)) break;
        }
        if (before < s) continue;
        n += (size_t)snprintf(out + n, size - n, "%s%.*s.%.*s", n == 0 ? "" : ", ", beginning.n, beginning.at, part.n,
                              part.at);
    }
}

/* Returns the closest word after a prefix; n 0 if all differ too much. */
static piece nearest_part(const weft_strategy_job *job, piece beginning, piece word) {
    piece best = {"", 0};
    int least = word.n / 3 + 1;
    int32_t s;
    for (s = 0; s < job->n_segments; s++) {
        const char *segment = weft_job_segment(job, s)->name;
        const piece part = part_behind(beginning, segment);
        if (matches(beginning, segment) != 1 || distance(word, part) > least) continue;
        best = part;
        least = distance(word, part);
    }
    return best;
}

static weft_status unknown(const reader *self, piece name) {
    char names[400], meant[2 * NAME + 32] = ".";
    const piece known = known_part(self->job, name);
    const int behind = known.n > 0 ? known.n + 1 : 0; /* the dot belongs to the known part */
    const piece rest = {name.at + behind, name.n - behind};
    const piece close = known.n > 0 ? nearest_part(self->job, known, rest) : nearest(self->job, name);
    if (known.n > 0) list_parts(self->job, known, names, sizeof names);
    else list_names(self->job, names, sizeof names);
    if (close.n > 0)
        (void)snprintf(meant, sizeof meant, ": did you mean %.*s%.*s?", behind, name.at, close.n, close.at);
    return weft_error_set(self->err, WEFT_E_USER,
                          "device_map names %.*s, and no segment is called so%s The segments%s%.*s are %s", name.n,
                          name.at, meant, known.n > 0 ? " of " : "", known.n, known.at, names);
}

static weft_status too_fine(const reader *self, piece name, const char *segment) {
    return weft_error_set(self->err, WEFT_E_USER,
                          "device_map names %.*s, which is smaller than segment %s. Allowed: complete segments", name.n,
                          name.at, segment);
}

/* ---- entries ---- */

static weft_status place(const reader *self, int32_t s, int32_t rank, const char *entry) {
    const char *before = self->placed_by[s];
    if (before == entry)
        return weft_error_set(self->err, WEFT_E_USER,
                              "device_map assigns segment %s more than once: \"%.*s\" contains it two times",
                              weft_job_segment(self->job, s)->name, (int)strcspn(entry, ";"), entry);
    if (before != NULL)
        return weft_error_set(self->err, WEFT_E_USER,
                              "device_map assigns segment %s more than once: by \"%.*s\", and by \"%.*s\"",
                              weft_job_segment(self->job, s)->name, (int)strcspn(before, ";"), before,
                              (int)strcspn(entry, ";"), entry);
    self->placed_by[s] = entry;
    self->owners[s] = rank;
    return WEFT_OK;
}

/* Checks that every number of a range exists: a range beyond the last layer is an error. */
static weft_status check_range(const reader *self, piece name) {
    int32_t first, last, number, s;
    piece rest = name;
    while (rest.n > 0) {
        const piece part = cut_at(rest, '.', &rest);
        const int stem = (int)(part.at - name.at);
        if (!range_of(part, &first, &last)) continue;
        if (first > last)
            return weft_error_set(self->err, WEFT_E_USER, "device_map has the range %.*s, which ends before it begins",
                                  name.n, name.at);
        for (number = first; number <= last; number++) {
            char one[NAME];
            const piece only = {one, snprintf(one, sizeof one, "%.*s%d", stem, name.at, (int)number)};
            for (s = 0; s < self->job->n_segments; s++)
                if (matches(only, weft_job_segment(self->job, s)->name) == 1) break;
            if (s == self->job->n_segments) return unknown(self, only);
        }
    }
    return WEFT_OK;
}

static weft_status read_name(const reader *self, piece name, int32_t rank, const char *entry) {
    int32_t s, found = 0, fine = -1;
    weft_status status = WEFT_OK;
    if (name.n >= NAME)
        return weft_error_set(self->err, WEFT_E_USER, "device_map has a name of %d letters: %d are the most", name.n,
                              NAME - 1);
    for (s = 0; s < self->job->n_segments && status == WEFT_OK; s++) {
        const int match = matches(name, weft_job_segment(self->job, s)->name);
        if (match == 2 && fine < 0) fine = s;
        if (match != 1) continue;
        status = place(self, s, rank, entry);
        found++;
    }
    if (status != WEFT_OK) return status;
    if (found == 0 && fine >= 0) return too_fine(self, name, weft_job_segment(self->job, fine)->name);
    status = check_range(self, name);
    return status == WEFT_OK && found == 0 ? unknown(self, name) : status;
}

static weft_status read_entry(const reader *self, piece entry) {
    piece behind, rest, names = cut_at(entry, '=', &behind);
    const piece last = trimmed(behind.at, behind.n);
    const int32_t rank = number_of(last);
    weft_status status = WEFT_OK;
    if (rank < 0 || names.n == 0)
        return weft_error_set(self->err, WEFT_E_USER,
                              "device_map has \"%.*s\". Allowed: auto, sequential, or entries names = rank, as in "
                              "embed,layers.0-12 = 0; layers.13-21,head = 1",
                              entry.n, entry.at);
    if (rank >= self->job->world)
        return weft_error_set(self->err, WEFT_E_USER,
                              "device_map has \"%.*s\", and there is no rank %d: this job's are 0 to %d", entry.n,
                              entry.at, (int)rank, (int)self->job->world - 1);
    while (names.n > 0 && status == WEFT_OK) {
        const piece name = cut_at(names, ',', &rest);
        if (name.n == 0)
            return weft_error_set(self->err, WEFT_E_USER, "device_map has \"%.*s\": there is no name before a comma",
                                  entry.n, entry.at);
        status = read_name(self, name, rank, entry.at);
        names = rest;
    }
    return status;
}

/* ---- read the map ---- */

static weft_status check_holes(const reader *self) {
    int32_t s, first = -1, n = 0;
    char names[400];
    for (s = 0; s < self->job->n_segments; s++) {
        if (self->owners[s] >= 0) continue;
        if (n++ == 0) first = s;
    }
    if (n == 0) return WEFT_OK;
    list_names(self->job, names, sizeof names);
    return weft_error_set(self->err, WEFT_E_USER,
                          "device_map assigns segment %s%s to no rank (%d of %d segments are missing); the segments "
                          "are %s. In a file a ; after a space begins a comment",
                          weft_job_segment(self->job, first)->name, n > 1 ? " and others" : "", (int)n,
                          (int)self->job->n_segments, names);
}

static weft_status check_ranks(const reader *self) {
    int32_t rank, s;
    for (rank = 0; rank < self->job->world; rank++) {
        for (s = 0; s < self->job->n_segments && self->owners[s] != rank; s++) {
        }
        if (s == self->job->n_segments)
            return weft_error_set(self->err, WEFT_E_USER,
                                  "device_map assigns no segment to rank %d of %d. Fix: add one, or start fewer ranks",
                                  (int)rank, (int)self->job->world);
    }
    return WEFT_OK;
}

weft_status mp_map_read(const weft_host *host, const mp_config *keys, const weft_strategy_job *job, int32_t *owners,
                        weft_error *err) {
    reader self = {job, owners, NULL, err};
    piece rest = {keys->device_map, (int)strlen(keys->device_map)};
    weft_status status = WEFT_OK;
    const size_t bytes = (size_t)job->n_segments * sizeof *self.placed_by;
    int32_t s;
    self.placed_by = (const char **)host->alloc(host, bytes, 8);
    if (self.placed_by == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a map of %d segments", (int)job->n_segments);
    for (s = 0; s < job->n_segments; s++) {
        self.placed_by[s] = NULL;
        owners[s] = -1;
    }
    while (rest.n > 0 && status == WEFT_OK) {
        const piece entry = cut_at(rest, ';', &rest);
        if (entry.n > 0) status = read_entry(&self, entry);
    }
    if (status == WEFT_OK) status = check_holes(&self);
    if (status == WEFT_OK) status = check_ranks(&self);
    host->release(host, (void *)self.placed_by);
    return status;
}
