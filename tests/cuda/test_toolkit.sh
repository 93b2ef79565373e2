#!/bin/sh
# The CUDA toolkit that the build selects, by its nvcc's version: at least 12.4, and the build tree's own if the
# system's is older. Tests CMake's messages with fake compilers that only print a version. ctest sets WEFT_BUILD and
# WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
command -v cmake >/dev/null || { echo "skipped: there is no cmake"; exit 77; }

nvcc() { # nvcc DIRECTORY RELEASE
    mkdir -p "$1/bin"
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.131"\n' "$2" "$2" >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
}
told() { # told TEXT argument...
    text=$1
    shift
    cmake "$@" -P "$WEFT_SOURCE/plugins/cuda.cmake" >said 2>&1 || true
    says said "$text"
}
taken() { # taken argument...: missing parts are reported, and its version is accepted
    cmake "$@" -P "$WEFT_SOURCE/plugins/cuda.cmake" >said 2>&1 || true
    if ! grep -q CUDA said || grep -qE "is the least|no release" said; then failed "not taken: $*" said; fi
}
for release in 11.8 12.3; do
    nvcc old $release
    told "CUDA was not found ($dir/old/bin/nvcc is of CUDA $release, and 12.4 is the least): no CUDA device" -DWEFT_CUDA_ROOT="$dir/old"
done
for release in 12.4 12.10 13.0; do
    nvcc new $release
    taken -DWEFT_CUDA_ROOT="$dir/new"
done
nvcc none ""
told "$dir/none/bin/nvcc --version names no release of CUDA" -DWEFT_CUDA_ROOT="$dir/none"

export CUDA_HOME="$dir/old" # the system's location
told "$dir/old/bin/nvcc is of CUDA 12.3"
nvcc cuda/nvidia/cu13 13.0
taken
exit $((failures > 0))
