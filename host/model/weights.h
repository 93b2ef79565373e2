/* host/model/weights.h: a model's weights between a Hugging Face directory and the flat parameter region of a device.
 *
 * Files are proved against the declared model, then read in their own order by several threads, and converted to the
 * type that each parameter is stored in on the way into the device's memory: each byte moves once, and after that none
 * is missing. Tied storage is written once, under its first name, as transformers does; when read, any of its names
 * will do, and where several are there they must agree.
 *
 * Where a vocabulary was made larger than the files' (weft_vocabulary), a further row of a matrix is the mean of the
 * file's, each element by itself, summed in fp64 in their order and rounded. */
#ifndef WEFT_HOST_MODEL_WEIGHTS_H
#define WEFT_HOST_MODEL_WEIGHTS_H

#include "model/region_write.h"

/* Bytes of data in one file of a saved model: what transformers calls a shard. */
#define WEFT_SHARD_BYTES ((int64_t)5000000000)

/* Reads all parameters but those of an adapter, as far as the region keeps them; padding becomes zero. Refused: a
 * missing, unexpected or wrongly shaped tensor, a type other than fp32, bf16 and fp16, names of tied storage that
 * differ. Names that end in "rotary_emb.inv_freq", a buffer that old checkpoints carry, are passed over with a line in
 * the log. */
weft_status weft_weights_load(const weft_region *region, const char *directory, weft_error *err);

/* The same from files that are open; directory is their name in messages. */
weft_status weft_weights_load_files(const weft_region *region, weft_safetensors *files, const char *directory,
                                    weft_error *err);

/* Fills parameters of a region from tensors of as many elements in fp32, bf16 or fp16, or packed as it is stored:
 * parameter p from tensors[p], none where that is NULL. Reads ahead in the files. */
weft_status weft_weights_read(const weft_region *region, weft_safetensors *files, const weft_tensor *const *tensors,
                              weft_error *err);

/* A fresh start, of all or of what an adapter added. A matrix is normal with mean 0 and its weight object's deviation,
 * unless that says another form; gains are one, biases zero. Element
 * e of parameter p (declaration order) is made of weft_random(seed, WEFT_RANDOM_INIT, p, e / 4): its numbers v give two
 * pairs by Box and Muller ("A note on the generation of random normal deviates", 1958) in fp64, r = sqrt(-2 ln((v[0] +
 * 1) / 2^32)), a = 2 pi v[1] / 2^32: r cos a, r sin a, and the same of v[2], v[3], of which e takes number e % 4, times
 * the deviation, rounded once. A uniform one takes v[e % 4], as (v + 1/2) / 2^31 - 1 times its bound. So the weights
 * depend on seed and model alone. */
/* What starts as norms of rows takes those of `files`, or, NULL, of what is drawn, as they are stored. */
weft_status weft_weights_init(const weft_region *region, uint64_t seed, bool added_alone, const weft_safetensors *files,
                              weft_error *err);

/* The files of a directory, with the names of its tensors as the model has them: AutoModel saves them without "model.",
 * and torch.compile, DDP and vision models put `_orig_mod.`, `module.` or `language_model.` before all of them. */
weft_status weft_weights_open(weft_safetensors **out, const weft_declared *declared, const char *directory,
                              weft_error *err);

/* A copy of a config.json whose architectures name the class with the head, where they name the one below it. NULL: no
 * memory. The caller frees it. */
char *weft_config_json_with_head(const weft_declared *declared, const char *text, size_t bytes, size_t *out_bytes);

/* Only proves that the directory's files have each parameter in its shape, and nothing else; reads their headers. */
weft_status weft_weights_check(const weft_declared *declared, const char *directory, weft_error *err);
/* The same of files that are open; directory is their name in messages. WEFT_E_DATA: they are of another model. */
weft_status weft_weights_check_files(const weft_declared *declared, const weft_safetensors *files,
                                     const char *directory, weft_error *err);

/* Whether two tensors of one shape have the same numbers, whatever types they are stored in. */
weft_status weft_weights_same(bool *same, const weft_safetensors *a_files, const weft_tensor *a,
                              const weft_safetensors *b_files, const weft_tensor *b, weft_error *err);

/* Only proves that names of tied storage which the files have beside each other hold the same numbers; reads those. Of
 * files that fit. */
weft_status weft_weights_check_ties(const weft_declared *declared, const weft_safetensors *files, const char *directory,
                                    weft_error *err);

/* The tensor that holds a parameter, under the first of its names that is there; NULL: none. */
const weft_tensor *weft_weights_tensor(const weft_safetensors *files, const weft_parameter *parameter);

/* The type in which a directory's files hold most of their numbers, and that of blocks which they hold: 0: none;
 * `packed` may be NULL. */
weft_status weft_weights_dtype(int32_t *out, int32_t *packed, const char *directory, weft_error *err);

/* Writes all parameters but those of an adapter: model.safetensors, or model-00001-of-0000N.safetensors and their index
 * where one file would hold more than shard_bytes of data; config.json as it was read with dtype in place of its own,
 * in the spellings of transformers 4 and 5; and generation_config.json where the
 * model's directory has one. dtype: WEFT_F32, WEFT_BF16 or WEFT_F16; what is packed stays so. The directory exists and
 * holds none of these files; each file is synced, and on failure what is there is not to be used. roots: may be NULL.
 * [collective] */
weft_status weft_weights_save(const weft_region *region, const char *directory, int32_t dtype, int64_t shard_bytes,
                              const weft_roots *roots, weft_error *err);

/* Creates one file with the values of a region, by parameter name: masters in fp32, which what is packed has none
 * of, or (trainable_only) an optimizer's state as it is kept, which has the trainable part of the layout alone.
 * roots: may be NULL. [collective] */
weft_status weft_weights_save_file(const weft_region *region, const char *path, bool trainable_only,
                                   const weft_roots *roots, weft_error *err);

#endif
