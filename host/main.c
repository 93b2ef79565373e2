/* host/main.c: the process `weft`. */
#include "command/cli.h"

int main(int argc, char **argv) {
    return weft_cli_main(argc, argv);
}
