/* host/tools/prove/proof.h: what `weft prove` found, as a table or an object. */
#ifndef WEFT_HOST_TOOLS_PROVE_PROOF_H
#define WEFT_HOST_TOOLS_PROVE_PROOF_H

#include "tools/prove/prove.h"

void weft_proof_print(const weft_proof *proof, FILE *to);
weft_status weft_proof_print_json(const weft_proof *proof, FILE *to, weft_error *err);

#endif
