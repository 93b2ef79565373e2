/* host/command/commands.c: see commands.h. */
#include "command/commands.h"

extern const weft_command weft_command_config_check, weft_command_config_describe, weft_command_config_explain,
    weft_command_data_show, weft_command_data_stats, weft_command_eval, weft_command_generate, weft_command_merge,
    weft_command_plan, weft_command_plugins_list, weft_command_plugins_describe, weft_command_plugins_new,
    weft_command_tokenize, weft_command_train;

const weft_command *const weft_commands[] = {&weft_command_config_check,
                                             &weft_command_config_describe,
                                             &weft_command_config_explain,
                                             &weft_command_data_show,
                                             &weft_command_data_stats,
                                             &weft_command_eval,
                                             &weft_command_generate,
                                             &weft_command_merge,
                                             &weft_command_plan,
                                             &weft_command_plugins_list,
                                             &weft_command_plugins_describe,
                                             &weft_command_plugins_new,
                                             &weft_command_tokenize,
                                             &weft_command_train,
                                             NULL};
