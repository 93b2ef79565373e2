/* host/command/commands.h: the built-in commands of the program `weft`. */
#ifndef WEFT_HOST_COMMAND_COMMANDS_H
#define WEFT_HOST_COMMAND_COMMANDS_H

#include "cli/cli.h"

/* Ended by NULL. */
extern const weft_command *const weft_commands[];

#endif
