/* host/launch/job_secret.h: authenticates two processes as members of one user's job.
 *
 * The secret is WEFT_JOB_SECRET, if it is set. Otherwise it is the file weft/job-secret of the user's data directory
 * ($XDG_DATA_HOME or ~/.local/share), which the first process that needs it creates with mode 0600. The secret is never
 * sent. Each side sends random bytes, and its proof is a SHA-256 over the secret and both sides' bytes. */
#ifndef WEFT_HOST_LAUNCH_JOB_SECRET_H
#define WEFT_HOST_LAUNCH_JOB_SECRET_H

#include "base/hash.h"

#define WEFT_JOB_SECRET "WEFT_JOB_SECRET"

typedef struct weft_job_key {
    unsigned char bytes[WEFT_HASH_BYTES];
} weft_job_key;

typedef struct weft_job_words { /* random bytes of both sides, and the rank that connects */
    unsigned char server[WEFT_HASH_BYTES], client[WEFT_HASH_BYTES];
    int32_t rank;
} weft_job_words;

/* Reads the secret, or creates it. */
weft_status weft_job_key_read(weft_job_key *out, weft_error *err);
/* Fills out with random bytes; false: the system call failed. */
bool weft_job_random(unsigned char out[WEFT_HASH_BYTES]);
/* Computes a proof. role: "rank" or "keeper", so that one side's proof is invalid for the other. */
weft_status weft_job_prove(unsigned char out[WEFT_HASH_BYTES], const weft_job_key *key, const char *role,
                           const weft_job_words *words, weft_error *err);
/* Compares in constant time. */
bool weft_job_proof_equals(const unsigned char a[WEFT_HASH_BYTES], const unsigned char b[WEFT_HASH_BYTES]);

#endif
