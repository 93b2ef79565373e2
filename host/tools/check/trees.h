/* host/tools/check/trees.h: module trees with parameters, drawn from a number, as wrap policies see them. */
#ifndef WEFT_HOST_TOOLS_CHECK_TREES_H
#define WEFT_HOST_TOOLS_CHECK_TREES_H

#include <stdbool.h>
#include <weft/policy.h>

enum { WEFT_TREE_MODULES = 8100, WEFT_TREE_PARAMETERS = 4100, WEFT_TREE_NAME = 512, WEFT_TREES = 27 };

typedef struct weft_tree {
    weft_policy_job job; /* its arrays lie in this struct, so a tree is not copied */
    weft_module_view modules[WEFT_TREE_MODULES];
    weft_parameter_view parameters[WEFT_TREE_PARAMETERS];
    char module_paths[WEFT_TREE_MODULES][WEFT_TREE_NAME], parameter_names[WEFT_TREE_PARAMETERS][WEFT_TREE_NAME];
    char class_names[WEFT_TREE_MODULES][32];
} weft_tree;

/* Tree `number`: 0 has a root alone, 1 has no block, 2 is one block, others up to 23 have up to 12 blocks; 24 has 128
 * blocks, 25 has 1,000 under paths of some 400 bytes, and those of 26 lie elsewhere. Some parameters are frozen or
 * packed, and some modules have none. Downwards: the same tree, whose names lie in memory in the other order. */
void weft_tree_draw(weft_tree *out, uint32_t number, bool downwards);

#endif
