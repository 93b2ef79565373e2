/* host/plugin/writable.c: see writable.h. */
#include "plugin/writable.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* the kernel's limit */

typedef struct walk {
    char *out;
    bool found;
    int links;
} walk;

static void keep(walk *self, const char *what, const char *who, const char *how, const char *mend, const char *path) {
    self->found = true;
    (void)snprintf(self->out, WEFT_WRITABLE_TEXT, "can be %s by %s, who %s %.*s: %s %.*s", what, who, how, PATH_MAX,
                   path, mend, PATH_MAX, path);
}

static bool is_another(uid_t user) {
    return user != 0 && user != geteuid();
}

static void judge_owner(walk *self, const char *what, const char *path, uid_t user) {
    char who[48];
    if (!is_another(user)) return;
    (void)snprintf(who, sizeof who, "user %lu", (unsigned long)user);
    keep(self, what, who, "owns", "use a copy in a directory of your own, or chown", path);
}

static void judge(walk *self, const char *path, const struct stat *is) {
    const bool directory = S_ISDIR(is->st_mode);
    const char *what = directory ? "replaced" : "changed";
    char who[48];
    judge_owner(self, what, path, is->st_uid);
    if (directory && (is->st_mode & S_ISVTX) != 0) return;
    if ((is->st_mode & S_IWGRP) != 0 && is->st_gid != 0 && is->st_gid != getegid()) {
        (void)snprintf(who, sizeof who, "all of group %lu", (unsigned long)is->st_gid);
        keep(self, what, who, "may write to", "chmod g-w", path);
    }
    if ((is->st_mode & S_IWOTH) != 0) keep(self, what, "every user of this machine", "may write to", "chmod o-w", path);
}

static void go(walk *self, const char *path);

/* Follows a link: its target is relative to the directory that contains it. */
static void follow(walk *self, const char *path) {
    char target[PATH_MAX], whole[PATH_MAX];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    const int directory = (int)(strrchr(path, '/') - path) + 1;
    int length = 0;
    if (n <= 0 || self->links++ >= MOST_LINKS) return;
    target[n] = '\0';
    length = snprintf(whole, sizeof whole, "%.*s%s", target[0] == '/' ? 0 : directory, path, target);
    if (length > 0 && (size_t)length < sizeof whole) go(self, whole);
}

static void look_at(walk *self, const char *path) {
    struct stat is;
    if (lstat(path, &is) != 0) return;
    if (!S_ISLNK(is.st_mode)) {
        judge(self, path, &is);
        return;
    }
    judge_owner(self, "replaced", path, is.st_uid);
    follow(self, path);
}

/* Walks from the root to the file, so that the last finding is nearest to it. */
static void go(walk *self, const char *path) {
    char part[PATH_MAX] = "/";
    look_at(self, part);
    for (const char *end = path + 1; *end != '\0';) {
        end += strcspn(end, "/");
        (void)snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
        look_at(self, part);
        end += strspn(end, "/");
    }
}

bool weft_writable_by_others(char out[WEFT_WRITABLE_TEXT], const char *path) {
    char whole[PATH_MAX], here[PATH_MAX] = "";
    walk self = {out, false, 0};
    int length = 0;
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) return false;
    length = snprintf(whole, sizeof whole, "%s%s%s", here, path[0] == '/' ? "" : "/", path);
    if (length <= 0 || (size_t)length >= sizeof whole) return false;
    go(&self, whole);
    return self.found;
}
