/* host/conform/trees.h: module trees with parameters, drawn from a number, as wrap policies see them. */
#ifndef WEFT_HOST_CONFORM_TREES_H
#define WEFT_HOST_CONFORM_TREES_H

#include <weft/policy.h>

enum { WEFT_TREE_MODULES = 160, WEFT_TREE_PARAMETERS = 200, WEFT_TREE_NAME = 96, WEFT_TREES = 24 };

typedef struct weft_tree {
    weft_policy_job job; /* its arrays lie in this struct, so a tree is not copied */
    weft_module_view modules[WEFT_TREE_MODULES];
    weft_parameter_view parameters[WEFT_TREE_PARAMETERS];
    char module_paths[WEFT_TREE_MODULES][WEFT_TREE_NAME], parameter_names[WEFT_TREE_PARAMETERS][WEFT_TREE_NAME];
} weft_tree;

/* Tree `number`: 0 has a root alone, 1 has no block, 2 is one block, others have up to 12 blocks; some parameters are
 * frozen, packed, tied storage's own or without elements in their module. */
void weft_tree_draw(weft_tree *out, uint32_t number);

#endif
