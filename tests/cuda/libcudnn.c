/* libcudnn.c: an empty library with cuDNN's name, linked with the emulator, which has the functions
 * (emulator/dnn.cpp). */
extern const char weft_emulator_stands_for[];
const char weft_emulator_stands_for[] = "cuDNN 9";
