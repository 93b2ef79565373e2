/* note.c: the note in a plugin's file. */
#include "fuzz.h"

#include "plugin/load.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_preflight found;
    weft_error err = WEFT_ERROR_INIT;
    char *text = malloc(size + 1);
    if (text == NULL) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    memset(&found, 0, sizeof found);
    fuzz_judge(weft_note_parse(&found, text, &err), &err);
    free(text);
    return 0;
}
