/* libcudnn.c: a library of cuDNN's name. What it is asked for is found in the emulator (emulator/dnn.cpp), which it is
 * linked with. */
extern const char weft_emulator_stands_for[];
const char weft_emulator_stands_for[] = "cuDNN 9";
