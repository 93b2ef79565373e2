/* chat_named.c: built-in templates, for models without one in their files. They mark answers, including the end token,
 * by {% generation %} blocks. */
#include "chat.h"

/* For templates that support only user and assistant messages. */
#define NO_SUCH_ROLE                                                                                                   \
    "{% else %}{{ raise_exception('the role ' ~ m.role ~ ' is not known here; allowed: user, assistant, and system "   \
    "for the first message') }}"

static const struct {
    const char *name, *source;
} rows[] = {
    {"alpaca",
     "{%- if messages[0].role == 'system' %}{% set intro = messages[0].content %}{% set rest = messages[1:] %}"
     "{% else %}{% set rest = messages %}{% endif -%}"
     "{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}"
     "{% if intro is defined %}{{ intro }}{% elif m.input %}"
     "{{ 'Below is an instruction that describes a task, paired with an input that provides further context. "
     "Write a response that appropriately completes the request.' }}{% else %}"
     "{{ 'Below is an instruction that describes a task. Write a response that appropriately completes the request.' }}"
     "{% endif %}{{ '\\n\\n### Instruction:\\n' + (m.instruction if m.instruction is defined else m.content) }}"
     "{% if m.input %}{{ '\\n\\n### Input:\\n' + m.input }}{% endif %}{{ '\\n\\n### Response:\\n' }}"
     "{% elif m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
     "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}" NO_SUCH_ROLE "{% endif %}{% endfor %}"},
    {"llama2",
     "{%- if messages[0].role == 'system' %}{% set intro = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
     "{% set rest = messages[1:] %}{% else %}{% set intro = '' %}{% set rest = messages %}{% endif -%}"
     "{% for m in rest %}{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ (intro if loop.first else '') ~ "
     "m.content|trim ~ ' [/INST]' }}"
     "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' ~ m.content|trim ~ ' ' ~ eos_token }}{% endgeneration "
     "%}" NO_SUCH_ROLE "{% endif %}{% endfor %}"},
    {"llama3", "{{ bos_token }}{% for m in messages %}"
               "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
               "{% if m.role == 'assistant' %}{% generation %}{{ m.content|trim + '<|eot_id|>' }}{% endgeneration %}"
               "{% else %}{{ m.content|trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"chatml", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
               "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
               "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"mistral",
     "{%- if messages[0].role == 'system' %}{% set intro = messages[0].content + '\\n\\n' %}{% set rest = messages[1:] "
     "%}"
     "{% else %}{% set intro = '' %}{% set rest = messages %}{% endif -%}"
     "{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}"
     "{{ '[INST] ' + (intro if loop.first else '') + m.content + ' [/INST]' }}"
     "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' ~ m.content|trim ~ eos_token }}{% endgeneration "
     "%}" NO_SUCH_ROLE "{% endif %}{% endfor %}"},
    {"gemma",
     "{%- if messages[0].role == 'system' %}{% set intro = messages[0].content|trim + '\\n\\n' %}{% set rest = "
     "messages[1:] %}"
     "{% else %}{% set intro = '' %}{% set rest = messages %}{% endif -%}"
     "{{ bos_token }}{% for m in rest %}"
     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (intro if loop.first else '') }}"
     "{% if m.role == 'assistant' %}{% generation %}{{ m.content|trim + '<end_of_turn>' }}{% endgeneration %}"
     "{% else %}{{ m.content|trim + '<end_of_turn>' }}{% endif %}{{ '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *chat_named(uint32_t i) {
    return i < N_ROWS ? rows[i].name : NULL;
}

const char *chat_named_source(uint32_t i) {
    return i < N_ROWS ? rows[i].source : NULL;
}
