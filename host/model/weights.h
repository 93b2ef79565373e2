/* host/model/weights.h: transfers a model's weights between a Hugging Face directory and the flat parameter region of a
 * device.
 *
 * Files are checked against the declared model, then read in file order by several threads and converted while they are
 * written to device memory. Tied storage is written once, under its first name, as transformers does. A load accepts
 * any of its names; if several are present, they must be equal.
 *
 * If the vocabulary was extended beyond the files' (weft_vocabulary), each added row of a matrix is the mean of the
 * file's rows: per element, summed in fp64 in row order and rounded. */
#ifndef WEFT_HOST_MODEL_WEIGHTS_H
#define WEFT_HOST_MODEL_WEIGHTS_H

#include "model/region.h"

/* Maximum bytes of data per file of a saved model, which transformers calls a shard. */
#define WEFT_SHARD_BYTES ((int64_t)5000000000)

/* Loads all parameters except those of adapters, as far as the region stores them, and zeroes the padding. Fails for
 * a missing, unexpected or wrongly shaped tensor, a type other than fp32, bf16 and fp16, and tied names with different
 * values. Ignores names that end in "rotary_emb.inv_freq", a buffer of old checkpoints, with a log line. */
weft_status weft_weights_load(const weft_region *region, const char *directory, weft_error *err);

/* The same with open files; `directory` names them in messages. */
weft_status weft_weights_load_files(const weft_region *region, weft_safetensors *files, const char *directory,
                                    weft_error *err);

/* Fills parameters of a region from tensors with as many elements in fp32, bf16 or fp16, or packed in the storage type:
 * parameter p from tensors[p]; NULL entries are skipped. Reads ahead in the files. */
weft_status weft_weights_read(const weft_region *region, weft_safetensors *files, const weft_tensor *const *tensors,
                              weft_error *err);

/* Reads elements [first, first + n) of an unpacked tensor, converted to dtype. [any-thread] */
weft_status weft_weights_read_numbers(const weft_safetensors *files, void *out, int32_t dtype,
                                      const weft_tensor *tensor, int64_t first, int64_t n, weft_error *err);

/* Initializes all parameters, or only those added by adapters. A matrix is normal with mean 0 and its weight object's
 * deviation, unless the object specifies another form; gains are one, biases zero. Element e of parameter p
 * (declaration order) uses v = weft_random(seed, WEFT_RANDOM_INIT, p, e / 4), from which Box and Muller ("A note on the
 * generation of random normal deviates", 1958) make two pairs in fp64: r cos a, r sin a with r = sqrt(-2 ln((v[0] + 1)
 * / 2^32)) and a = 2 pi v[1] / 2^32; v[2] and v[3] yield the second. Element e is number e % 4 times the deviation,
 * rounded once. A uniform form uses (v[e % 4] + 1/2) / 2^31 - 1 times its bound. Row norms are those of the stored
 * values of `files`, or of the drawn numbers if NULL. */
weft_status weft_weights_init(const weft_region *region, uint64_t seed, bool added_alone, const weft_safetensors *files,
                              weft_error *err);

/* Opens the files of a directory and maps each tensor's name to that of the model. AutoModel saves names without
 * "model."; torch.compile, DDP, FSDP, PEFT and vision models add `_orig_mod.`, `module.`, `_fsdp_wrapped_module.`,
 * `base_model.model.` or `language_model.`. WEFT_E_DATA: two tensors map to one name. */
weft_status weft_weights_open(weft_safetensors **out, const weft_declared *declared, const char *directory,
                              weft_error *err);

/* Sorts the tensors by name after a renaming. WEFT_E_DATA: two have one name. */
weft_status weft_weights_sort(weft_safetensors *files, const char *directory, weft_error *err);

/* Returns the length of a prefix of a tensor's name that is not known and before one of the model's names; 0: no such
 * prefix. */
size_t weft_weights_unknown_prefix(const weft_declared *declared, const char *name);

/* Edits a config.json (model/config_json.h) so that `architectures` names the class with the head instead of its inner
 * class. */
weft_status weft_config_json_set_head(const weft_declared *declared, char **text, size_t *bytes, weft_error *err);

/* Adds keys to a config.json that one of transformers 4 and 5 reads and that exist only in the other's spelling, so
 * that both versions load it:
 *   dtype                     torch_dtype, and the reverse
 *   rope_parameters           rope_theta, rope_scaling and partial_rotary_factor
 *   rope_parameters by type   the same from full_attention, and rope_local_base_freq from sliding_attention (Gemma 3)
 * transformers 5 reads files of transformers 4 without changes. Existing values other than null are kept. */
weft_status weft_config_json_add_spellings(char **text, size_t *bytes, weft_error *err);

/* Checks that the directory's files contain exactly the model's parameters in the right shapes. Reads only the
 * headers. */
weft_status weft_weights_check(const weft_declared *declared, const char *directory, weft_error *err);
/* Does the same with open files; `directory` names them in messages. WEFT_E_DATA: files of another model. */
weft_status weft_weights_check_files(const weft_declared *declared, const weft_safetensors *files,
                                     const char *directory, weft_error *err);

/* Compares the values of two tensors of one shape, for any storage types. */
weft_status weft_weights_same(bool *same, const weft_safetensors *a_files, const weft_tensor *a,
                              const weft_safetensors *b_files, const weft_tensor *b, weft_error *err);

/* Checks that tied names which are both present in the files have equal values. Reads those tensors. The files must
 * have passed weft_weights_check_files. */
weft_status weft_weights_check_ties(const weft_declared *declared, const weft_safetensors *files, const char *directory,
                                    weft_error *err);

/* Returns a parameter's tensor, under the first of its names that is present; else NULL. */
const weft_tensor *weft_weights_tensor(const weft_safetensors *files, const weft_parameter *parameter);

/* Returns the type of most numbers in a directory's files, and the packed type of their blocks, 0 without blocks;
 * `packed` may be NULL. */
weft_status weft_weights_dtype(int32_t *out, int32_t *packed, const char *directory, weft_error *err);

/* Saves all parameters except those of adapters: model.safetensors, or model-00001-of-0000N.safetensors and their index
 * if one file would exceed shard_bytes of data; config.json as read, with dtype replaced and the keys of transformers 4
 * and 5; and generation_config.json if the model's directory has one. dtype: WEFT_F32, WEFT_BF16 or WEFT_F16; packed
 * parameters stay packed. The directory must exist without any of these files. Each file is synced. After a failure the
 * files are invalid. roots: may be NULL. [collective] */
weft_status weft_weights_save(const weft_region *region, const char *directory, int32_t dtype, int64_t shard_bytes,
                              const weft_roots *roots, weft_error *err);

/* Creates one file with the values of a region, by parameter name. They are fp32 masters, without packed parameters, or
 * (trainable_only) an optimizer state in its storage type, for the trainable part of the layout. roots: may be NULL.
 * [collective] */
weft_status weft_weights_save_file(const weft_region *region, const char *path, bool trainable_only,
                                   const weft_roots *roots, weft_error *err);

#endif
