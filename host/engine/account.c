/* host/engine/account.c: see account.h. */
#include "engine/account.h"

#include "plugin/enter.h"

int64_t weft_account_total(const weft_account *account) {
    int64_t total = 0;
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++) total += account->taken[i];
    return total;
}

weft_status weft_account_take(weft_account *account, weft_slot_ref *out, int64_t bytes, weft_account_line line,
                              weft_error *err) {
    weft_slot_ref slot = {0};
    weft_status status = WEFT_OK;
    if (bytes > 0) {
        WEFT_PLUGIN_CALL(status, account->kernels, alloc, err, account->device, &slot.ref.buffer, bytes);
        if (status != WEFT_OK) return status;
        slot.bytes = bytes;
        account->taken[line] += bytes;
        if (weft_account_total(account) > account->most) account->most = weft_account_total(account);
    }
    *out = slot;
    return status;
}

void weft_account_give(weft_account *account, weft_slot_ref *slot, weft_account_line line) {
    const weft_slot_ref empty = {0};
    if (slot->ref.buffer != NULL) {
        WEFT_PLUGIN_TELL(account->kernels, release, account->device, slot->ref.buffer);
        account->taken[line] -= slot->bytes;
    }
    *slot = empty;
}
