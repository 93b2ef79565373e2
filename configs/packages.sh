#!/bin/sh
# Installs what Weft is built with, from Debian's or Ubuntu's packages. Does nothing where all is there.
#   configs/packages.sh            to build and run
#   configs/packages.sh tests      and to test
#   configs/packages.sh format     to lay out the sources
#   configs/packages.sh fuzz       to draw inputs for the parsers
#   configs/packages.sh python     to fetch what Python's index has
#   configs/packages.sh cuda       to build the CUDA device, from Python's index into build/cuda (or $WEFT_BUILD_DIR/cuda);
#                                  not needed where the CUDA Toolkit, cuDNN and NCCL are installed
set -eu
build="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libinih-dev libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev mpich libmpich-dev"
tests="check libsubunit-dev python3 python3-pytest patch binutils iproute2 hostname g++ openmpi-bin libopenmpi-dev"
wanted=$build
case ${1:-} in
tests) wanted="$build $tests" ;;
format) wanted="git clang-format-14" ;;
fuzz) wanted="$build clang" ;;
python) python3 -m pip --version >/dev/null 2>&1 && exit 0; wanted="python3 python3-pip" ;;
cuda)
    sh "$0" python
    to=${WEFT_BUILD_DIR:-$(cd "$(dirname "$0")/.." && pwd)/build}/cuda
    # One version: drivers of CUDA 13.0 run it, and every later one of 13.
    exec python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$to" \
        nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 \
        nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.1.0.3 nvidia-cudnn-cu13==9.19.0.56 \
        nvidia-nccl-cu13==2.28.9 nvidia-nvtx==13.0.85 ;;
esac

missing=
for package in $wanted; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "packages.sh: these packages need root to install:$missing" >&2; exit 1; }
    as_root=sudo
fi
log=$(mktemp)
# shellcheck disable=SC2086  # a list of words on purpose
if ! { $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive \
       apt-get install -q -y --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    echo "packages.sh: the packages could not be installed; the reason stands above" >&2
    exit 1
fi
rm -f "$log"
