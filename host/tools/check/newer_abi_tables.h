/* host/tools/check/newer_abi_tables.h: of each kind a table that hands each call on with longer structs. */
#ifndef WEFT_HOST_TOOLS_CHECK_NEWER_ABI_TABLES_H
#define WEFT_HOST_TOOLS_CHECK_NEWER_ABI_TABLES_H

/* The one that hands on to `real`, a table of the kind; NULL: of a kind whose arguments are made longer by who asks.
 * One of each kind. [main] */
const void *weft_newer_abi_table(const char *kind, const void *real);

#endif
