/* host/main.c: the program `weft`: its commands and nothing else. */
#include "cli/cli.h"

extern const weft_command weft_command_eval, weft_command_generate, weft_command_train;

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_eval, &weft_command_generate, &weft_command_train,
                                                   NULL};
    return weft_cli_main(argc, argv, commands);
}
