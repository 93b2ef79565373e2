/* host/command/commands.h: the commands that the program `weft` runs itself. */
#ifndef WEFT_HOST_COMMAND_COMMANDS_H
#define WEFT_HOST_COMMAND_COMMANDS_H

#include "cli/cli.h"

/* Ended by NULL. */
extern const weft_command *const weft_commands[];

#endif
