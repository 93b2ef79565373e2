/* Structs that are shorter or longer on one side: the functions of weft/base.h that read and fill them. */
#include "suite.h"

#include <check.h>

#include <weft/transfer.h>

/* One struct in three SDK versions. */
typedef struct old_spec {
    uint32_t struct_size;
    uint32_t flags;
    int64_t n;
} old_spec;

typedef struct new_spec {
    uint32_t struct_size;
    uint32_t flags;
    int64_t n;
    int64_t window;
    double cap;
} new_spec;

/* Hides the object's type and content from the compiler, as if from another binary. */
static const void *foreign(const void *at) {
    static const void *volatile shown;
    shown = at;
    return shown;
}

TEST(what_the_writer_had_no_field_for_is_zero) {
    const old_spec from = {(uint32_t)sizeof from, 3, 7};
    new_spec to;
    memset(&to, 0xA5, sizeof to);
    ck_assert_int_eq(weft_struct_take(&to, sizeof to, foreign(&from)), 1);
    ck_assert_uint_eq(to.struct_size, sizeof from);
    ck_assert_uint_eq(to.flags, 3);
    ck_assert_int_eq(to.n, 7);
    ck_assert_int_eq(to.window, 0);
    ck_assert(to.cap == 0);
    ck_assert(!WEFT_HAS(&to, window));
}

TEST(what_the_reader_does_not_know_must_be_zero) {
    new_spec from = {(uint32_t)sizeof from, 3, 7, 0, 0};
    old_spec to[2];
    memset(to, 0xA5, sizeof to);
    ck_assert_int_eq(weft_struct_take(&to[0], sizeof to[0], foreign(&from)), 1);
    ck_assert_uint_eq(to[0].struct_size, sizeof to[0]);
    ck_assert_int_eq(to[0].n, 7);
    ck_assert_uint_eq(to[1].struct_size, 0xA5A5A5A5u);
    from.cap = 30;
    ck_assert_int_eq(weft_struct_take(&to[0], sizeof to[0], foreign(&from)), 0);
    ck_assert_int_eq(weft_struct_known(foreign(&from), sizeof(old_spec)), 0);
    ck_assert_int_eq(weft_struct_known(foreign(&from), sizeof(new_spec)), 1);
}

/* Such a size was never set: no read beyond it. */
TEST(a_size_that_is_none_is_not_followed) {
    const old_spec from = {0xA5A5A5A5u, 0, 7};
    ck_assert_int_eq(weft_struct_known(foreign(&from), sizeof from), 0);
}

TEST(an_answer_fills_what_both_know) {
    const new_spec known = {(uint32_t)sizeof known, 3, 7, 9, 30};
    const old_spec less = {(uint32_t)sizeof less, 4, 8};
    old_spec shorter[2];
    new_spec longer = {(uint32_t)sizeof longer, 0, 0, -1, 1};
    memset(shorter, 0xA5, sizeof shorter);
    shorter[0].struct_size = (uint32_t)sizeof shorter[0];
    weft_struct_give(&shorter[0], foreign(&known));
    ck_assert_uint_eq(shorter[0].struct_size, sizeof shorter[0]);
    ck_assert_uint_eq(shorter[0].flags, 3);
    ck_assert_int_eq(shorter[0].n, 7);
    ck_assert_uint_eq(shorter[1].struct_size, 0xA5A5A5A5u);
    weft_struct_give(&longer, foreign(&less));
    ck_assert_uint_eq(longer.struct_size, sizeof longer);
    ck_assert_uint_eq(longer.flags, 4);
    ck_assert_int_eq(longer.n, 8);
    ck_assert_int_eq(longer.window, -1);
    ck_assert(longer.cap == 1);
}

static weft_device_transfer transfer;

static const void *offers(const weft_device *device, const char *id) {
    (void)device;
    return strcmp(id, WEFT_DEVICE_TRANSFER) == 0 ? &transfer : NULL;
}

static weft_status take(weft_device *device, void **out, int64_t bytes, weft_error *err) {
    (void)device, (void)out, (void)bytes;
    return weft_error_set(err, WEFT_E_MEMORY, "none");
}
static void give_back(weft_device *device, void *memory) {
    (void)device, (void)memory;
}
static weft_status upload(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                          weft_error *err) {
    (void)device, (void)s, (void)to, (void)from, (void)bytes, (void)err;
    return WEFT_OK;
}
static weft_status download(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                            weft_error *err) {
    (void)device, (void)s, (void)to, (void)from, (void)bytes, (void)err;
    return WEFT_OK;
}
static int32_t reached(weft_device *device, weft_event *event, weft_error *err) {
    (void)device, (void)event, (void)err;
    return 1;
}
static weft_status await(weft_device *device, weft_event *event, weft_error *err) {
    (void)device, (void)event, (void)err;
    return WEFT_OK;
}

/* An extension is complete or absent, so no missing slot is called. */
TEST(an_extension_is_judged_where_it_is_found) {
    const weft_device_transfer whole = {(uint32_t)sizeof whole, 0, take, give_back, upload, download, reached, await};
    weft_device_plugin device = {.struct_size = (uint32_t)sizeof device};
    const weft_device_transfer *found = &whole;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(weft_device_transfer_find(&found, &device, NULL, &err), WEFT_OK);
    ck_assert_ptr_null(found);
    device.extension = offers;
    transfer = whole;
    ck_assert_int_eq(weft_device_transfer_find(&found, &device, NULL, &err), WEFT_OK);
    ck_assert_ptr_eq(found, &transfer);
    transfer.struct_size -= 8;
    ck_assert_int_eq(weft_device_transfer_find(&found, &device, NULL, &err), WEFT_E_PLUGIN);
    ck_assert_ptr_nonnull(strstr(err.text, "weft.device.transfer/1 lacks required slots, or has 48 bytes"));
    transfer = whole;
    transfer.reached = NULL;
    ck_assert_int_eq(weft_device_transfer_find(&found, &device, NULL, &err), WEFT_E_PLUGIN);
}

int main(void) {
    return run_tests(tcase_create("structs"));
}
