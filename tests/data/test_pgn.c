/* Chess games in PGN as documents: moves, numbers and result, without the text around them. */
#include "text_rig.h"

#define GAME "[Event \"e\"]\n[Result \"1-0\"]\n\n1. e4 e5 2. f4 1-0\n"

/* Writes the recorded documents, each with a line end. */
static void seen_text(char *out, const rig *r) {
    const char *at = r->tokenizer.seen, *end = at + r->tokenizer.seen_bytes;
    size_t n = 0;
    while (at < end) {
        memcpy(&n, at, 8);
        memcpy(out, at + 8, n);
        out[n] = '\n';
        out += n + 1;
        at += 8 + n;
    }
    *out = '\0';
}

static const struct {
    const char *bytes, *documents;
} games[] = {
    {GAME, "1. e4 e5 2. f4 1-0\n"},
    {"1. e4 *", "1. e4 *\n"}, /* without tags and line end */
    {GAME "\n" GAME, "1. e4 e5 2. f4 1-0\n1. e4 e5 2. f4 1-0\n"},
    {"1.e4 e5 2.f4 exf4 0-1 1.d4 1/2-1/2", "1. e4 e5 2. f4 exf4 0-1\n1. d4 1/2-1/2\n"},
    {"e4 e5 f4 1-0", "1. e4 e5 2. f4 1-0\n"}, /* numbers are generated */
    {"1. e4 {a [%clk 0:10] (b) ; 1. d4\n\n[c]} 1... e5 ; rest ( { 2. d4\n2. f4 1-0", "1. e4 e5 2. f4 1-0\n"},
    {"1. e4 (1. d4 d5 (1... Nf6 $2 {)} 2. c4 1-0) 2. c4) (1. c4) e5 1-0", "1. e4 e5 1-0\n"},
    {"1. e4! $1 e5?! $146 2. f4!!? ?? 1-0", "1. e4 e5 2. f4 1-0\n"},
    {"%1. d4 d5\n1. e4\n%( {\ne5 1-0", "1. e4 e5 1-0\n"},
    {"\xef\xbb\xbf[Event \"\xe9\"]\r\n\r\n1. e4 e5\r\n1-0\r\n", "1. e4 e5 1-0\n"},
    {"[A \"a \\\"quoted\\\" ] \\\\\"] [ B \"\" ]\n1. e4 1-0", "1. e4 1-0\n"},
    {"1. Nf3 Nbd7 2. R1xa3+ Qh4xe1# 3. O-O 0-0-0++ 4. exd8=Q# a1N 5. Pe4 -- 6. exd6 e.p. Z0 1/2",
     "1. Nf3 Nbd7 2. R1xa3+ Qh4xe1# 3. O-O O-O-O+ 4. exd8=Q# a1=N 5. e4 -- 6. exd6 -- 1/2-1/2\n"},
    {"[SetUp \"1\"]\n[FEN \"8/8/8/8/8/8/8/Kk6 b - - 0 1\"]\n1... Kb2 1-0\n[Event \"e\"]\n1. e4 1-0", "1. e4 1-0\n"},
    {"[FEN \"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1\"]\n1. e4 1-0", "1. e4 1-0\n"},
    {"[Variant \"Crazyhouse\"]\n1. P@e4 1-0 [Variant \"Standard\"]\n1. e4 1-0", "1. e4 1-0\n"},
    {"[Event \"e\"]\n\n1-0\n\n" GAME, "1. e4 e5 2. f4 1-0\n"},
};

TESTS(games_become_lines, LENGTH(games)) {
    char text[1024];
    rig r = rig_recording();
    write_text("a.pgn", games[_i].bytes);
    RIG_MAKE(&r, "data.path=a.pgn");
    seen_text(text, &r);
    ck_assert_str_eq(text, games[_i].documents);
    rig_end(&r);
}

TEST(any_name_may_hold_games) {
    char text[1024];
    rig r = rig_recording();
    write_text("a.txt", GAME);
    RIG_MAKE(&r, "data.path=a.txt", "data.format=pgn");
    seen_text(text, &r);
    ck_assert_str_eq(text, "1. e4 e5 2. f4 1-0\n");
    rig_end(&r);
}

TEST(what_is_left_out_is_counted) {
    rig r = rig_recording();
    write_text("a.pgn", GAME "[FEN \"8/8/8/8/8/8/8/Kk6 b - - 0 1\"]\n1... Kb2 *\n");
    RIG_MAKE(&r, "data.path=a.pgn");
    ck_assert_ptr_nonnull(strstr(r.host.log, "a.pgn: 1 of 2 games have another start position"));
    rig_end(&r);
    r = rig_recording();
    write_text("a.pgn", "[Event \"e\"]\n*\n" GAME);
    RIG_MAKE(&r, "data.path=a.pgn");
    ck_assert_ptr_nonnull(strstr(r.host.log, "a.pgn: 1 of 2 games have no move"));
    rig_end(&r);
}

static const struct {
    const char *bytes, *says;
} errors[] = {
    {GAME "\n1. e4 e5\n", "a.pgn:6: the game that begins here has no result"},
    {"1. e4\n[Event \"e\"]\n1. d4 *", "a.pgn:1: the game that begins here has no result"},
    {"[Event \"e\"]\n[Event \"f\"]\n1. d4 *", "a.pgn:1: the game that begins here has no result"},
    {"1. e4\n{ not\nclosed", "a.pgn:2: the comment that begins here is not closed by }"},
    {"1. e4\n(1. d4\n(1. c4) *", "a.pgn:2: the variation that begins here is not closed by )"},
    {"1. e4\n(1. d4\n[Event \"e\"]", "a.pgn:2: the variation that begins here is not closed by )"},
    {"1. e4\n) *", "a.pgn:2: a ) without a variation"},
    {"[Event e]\n1. e4 *", "a.pgn:1: a tag is not [Name \"value\"]"},
    {"[Event \"e\n\"]\n1. e4 *", "a.pgn:1: a tag is not [Name \"value\"]"},
    {"[Event \"e\"\n1. e4 *", "a.pgn:1: a tag is not [Name \"value\"]"},
    {"[\"e\"]\n1. e4 *", "a.pgn:1: a tag is not [Name \"value\"]"},
    {"1. e4\ne2e4 *", "a.pgn:2: \"e2e4\" is not a move"},
    {"1. e9 *", "a.pgn:1: \"e9\" is not a move"},
    {"1. xd5 *", "a.pgn:1: \"xd5\" is not a move"},
    {"1. Ne4=Q *", "a.pgn:1: \"Ne4=Q\" is not a move"},
    {"1. e4 e5 3. f4 *", "a.pgn:1: \"3\" is not the number of the next move"},
    {"1. e4 <x> *", "a.pgn:1: \"<x>\" is not a move"},
    {"1. e4 ] *", "a.pgn:1: \"]\" is outside of a game"},
    {"1. e4 abcdefghijklmnopqrstuvwxyz\x01 *", "a.pgn:1: \"abcdefghijklmnopqrstuvwx\"... is not a move"},
    {"[Event \"e\"]\n*", "/a.pgn contains no usable game"},
    {"\n", "/a.pgn contains no usable game"},
};

TESTS(what_is_no_game_is_refused, LENGTH(errors)) {
    weft_error err = WEFT_ERROR_INIT;
    const char *keys[] = {"data.path=a.pgn", NULL};
    rig r = rig_of(0);
    write_text("a.pgn", errors[_i].bytes);
    ck_assert_int_eq(rig_make(&r, keys, &err), WEFT_E_DATA);
    ck_assert_says(err, errors[_i].says);
    ck_assert_msg(weft_text_is_clean(err.text, strlen(err.text)), "%s", err.text);
    rig_end(&r);
}

TEST(no_memory_is_a_sentence) {
    weft_error err = WEFT_ERROR_INIT;
    const char *keys[] = {"data.path=a.pgn", NULL};
    int64_t all = 0;
    rig r = rig_of(0);
    write_text("a.pgn", GAME GAME);
    RIG_MAKE(&r, "data.path=a.pgn");
    all = r.host.allocations;
    rig_end(&r);
    ck_assert_int_gt(all, 4);
    for (int64_t i = 0; i < all; i++) {
        r = rig_of(0);
        r.host.fail_at = i;
        ck_assert_int_eq(rig_make(&r, keys, &err), WEFT_E_MEMORY);
        ck_assert_says(err, "no memory");
        rig_end(&r);
    }
}

int main(void) {
    TCase *tests = tcase_create("pgn");
    tcase_add_checked_fixture(tests, scratch_enter, scratch_leave);
    return run_tests(tests);
}
