/* host/program/token_files.h: what the files of two tokenizers say of tokens that one has and the other does not. An
 * adapter's directory has the tokenizer that its run had ([tokenizer] add and pad). */
#ifndef WEFT_HOST_PROGRAM_TOKEN_FILES_H
#define WEFT_HOST_PROGRAM_TOKEN_FILES_H

#include "program/run.h"

/* Sets *out to the name of the pad token in a directory's tokenizer_config.json, to be freed; NULL: the file does not
 * exist or names none. */
weft_status weft_token_files_pad(char **out, const char *directory, weft_error *err);

/* Sets *out to the tokens in `has`/tokenizer.json that `had`/tokenizer.json does not list, but for the pad token that
 * only `has` names: "A,B" in the order of their ids, which is that of the file, to be freed. NULL: there are none, or
 * one of the files does not exist. */
weft_status weft_token_files_more(char **out, const char *had, const char *has, weft_error *err);

/* An adapter that is read was made with tokens which have the same ids in this run. */
weft_status weft_token_files_check(const weft_run *run, weft_error *err);

#endif
