#!/bin/sh
# Each model_type that transformers has is one of a model plugin's or has a reason in host/config/foreign_families.def.
# WEFT_PYTHONS are the interpreters that have transformers, one for each release; without any this is skipped.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
sed -n 's/^FOREIGN_FAMILY("\([^"]*\)".*/\1/p' "$WEFT_SOURCE/host/config/foreign_families.def" >known
for plugin in "$WEFT_BUILD"/plugins/weft-model-*.so; do
    basename "$plugin" .so | sed 's/^weft-model-//' >>known
done
[ "$(wc -l <known)" -gt 800 ] || failed "the families that are known" known
asked=
for python in ${WEFT_PYTHONS:-python3}; do
    "$python" -c 'import transformers' 2>/dev/null || continue
    asked="$asked $python"
    "$python" -c '
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
known = set(open("known").read().split())
missing = sorted(set(CONFIG_MAPPING_NAMES) - known)
print(*missing)
raise SystemExit(bool(missing))' >missing || failed "$python has a model_type that is neither served nor refused with a reason" missing
done
if [ -z "$asked" ]; then
    echo "skipped: no interpreter of WEFT_PYTHONS (or python3) has transformers"
    exit 77
fi
[ "$failures" -eq 0 ]
