/* host/run/account.c: device memory by category (engine.h). */
#include "run/engine.h"

#include "base/units.h"
#include "plugin/enter.h"
#include "program/budget.h"

int64_t weft_account_total(const weft_account *account) {
    int64_t total = 0;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) total += account->taken[i];
    return total;
}

void weft_account_add(weft_account *account, weft_account_line line, int64_t bytes) {
    account->taken[line] += bytes;
    if (weft_account_total(account) > account->most) account->most = weft_account_total(account);
}

weft_status weft_account_alloc(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                               weft_error *err) {
    weft_slot_ref slot = {.bytes = bytes};
    weft_status status = WEFT_OK;
    if (bytes > 0) WEFT_PLUGIN_CALL(status, account->kernels, alloc, err, account->device, &slot.ref.buffer, bytes);
    if (status != WEFT_OK) return status;
    weft_account_add(account, line, bytes);
    *out = slot;
    return WEFT_OK;
}

void weft_account_free(weft_account *account, weft_slot_ref *slot, weft_account_line line) {
    if (slot->ref.buffer != NULL) {
        WEFT_PLUGIN_NOTIFY(account->kernels, release, account->device, slot->ref.buffer);
        account->taken[line] -= slot->bytes;
    }
    *slot = (weft_slot_ref){0};
}

weft_status weft_account_open(weft_account *account, const int64_t *bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES && status == WEFT_OK; i++) {
        status = weft_account_alloc(account, &account->lines[i].whole, bytes[i], (weft_account_line)i, err);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "memory for %s: ", weft_account_name(i));
        account->lines[i].cut = 0;
    }
    return status;
}

weft_status weft_account_cut(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                             weft_error *err) {
    const weft_slot_ref *whole = &account->lines[line].whole;
    int64_t *cut = &account->lines[line].cut;
    *out = (weft_slot_ref){0};
    if (bytes == 0) return WEFT_OK;
    if (weft_buffer_part(bytes) > whole->bytes - *cut)
        return weft_error_set(err, WEFT_E_HOST,
                              "the plan has %lld bytes of %s, and a part of %lld needs more than the %lld that are "
                              "left",
                              (long long)whole->bytes, weft_account_name(line), (long long)bytes,
                              (long long)(whole->bytes - *cut));
    out->ref = whole->ref;
    out->ref.offset += *cut;
    out->bytes = bytes;
    *cut += weft_buffer_part(bytes);
    return WEFT_OK;
}

weft_status weft_account_check(const weft_account *account, weft_error *err) {
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++)
        if (account->lines[i].cut != account->lines[i].whole.bytes)
            return weft_error_set(err, WEFT_E_HOST, "the plan has %lld bytes of %s, of which %lld have a use",
                                  (long long)account->lines[i].whole.bytes, weft_account_name(i),
                                  (long long)account->lines[i].cut);
    return WEFT_OK;
}

void weft_account_close(weft_account *account) {
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) {
        weft_account_free(account, &account->lines[i].whole, (weft_account_line)i);
        account->lines[i].cut = 0;
    }
}

int64_t weft_account_held(const weft_account *account) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    WEFT_PLUGIN_NOTIFY(account->kernels, info, account->device, &info);
    return info.held;
}
