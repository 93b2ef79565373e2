/* host/main.c: the program `weft`: its commands and nothing else. */
#include "command/commands.h"

int main(int argc, char **argv) {
    return weft_cli_main(argc, argv, weft_commands);
}
