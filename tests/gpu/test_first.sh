#!/bin/sh
# The scripts for machines with a GPU: tests/gpu/first on the CUDA emulator, with failing and slow steps, and the archive
# of tests/gpu/pack in a root directory that holds only a C library. ctest sets WEFT_BUILD and WEFT_SOURCE.
set -eu
# shellcheck source=tests/common/shell.sh
. "$WEFT_SOURCE/tests/common/shell.sh"
[ -e "$WEFT_BUILD/tests/cuda/weft-device-cuda.so" ] || { echo "skipped: there is no CUDA emulator"; exit 77; }

first() { # first PART STEP...
    part=$1
    shift
    rm -rf out
    WEFT_ONLY="$*" timeout 3600 sh "$WEFT_SOURCE/tests/gpu/first" out "$WEFT_BUILD" "$part" >printed 2>&1
}
reports() { grep -qE -- "$1" out/report.txt || failed "the report has no $1" out/report.txt printed out/failures.txt; }
steps='load replay-no replay-yes replay-bits two-fp32-cpu two-fp32-gpu two-fp32 profile'
if is_full; then steps="$steps two-bf16-cpu two-bf16-gpu two-bf16 operators-rows operators-elementwise"; fi
# shellcheck disable=SC2086 # words
first 1 $steps || failed "part 1 fails" printed
for name in $steps; do reports " $name: passed"; done
reports '^ .*device  *cuda .* ok '
[ -s out/profile.txt ] || failed "part 1 keeps no profile"
steps='speed-auto bits-one bits-two bits alone nccl nccl-bits'
if is_full; then steps="$steps speed-cudnn speed-long prove golden chess-cpu chess-gpu chess"; fi
# shellcheck disable=SC2086 # words
first 2 $steps || failed "part 2 fails" printed
for name in $steps; do reports " $name: passed"; done
reports 'tokens/s, MFU of 989 TFLOP/s'
reports ' torch: skipped: '
# A kernel that fails: the step is reported, and the others run.
! WEFT_EMULATOR_FAIL='kernel:40=700' first 1 load replay-no || failed "a failing step gives exit status 0" printed
reports ' load: passed'
reports ' replay-no: FAILED: exit status [1-9]'
grep -q cudaErrorIllegalAddress out/failures.txt || failed "the failure's output is not kept" out/failures.txt
status=0
sh "$WEFT_SOURCE/tests/gpu/first" out "$WEFT_BUILD" 3 >printed 2>&1 || status=$?
[ $status = 2 ] || failed "part 3 gives exit status $status" printed

# The archive, where nothing else is installed.
if [ ! -e "$WEFT_BUILD/plugins/weft-device-cuda.so" ] || [ -e /proc/driver/nvidia ] || ! unshare -m true 2>/dev/null; then
    echo "skipped: the archive in an empty root, which needs the CUDA device, unshare -m, and no driver"
else
    sh "$WEFT_SOURCE/tests/gpu/pack" "$WEFT_BUILD" card.tgz >printed 2>&1 || failed "nothing is packed" printed
    mkdir -p root/lib64 root/tmp root/card root/dev root/proc root/source/tests
    tar -xzf card.tgz -C root/card
    cp -r "$WEFT_SOURCE/tests/golden" root/source/tests/
    for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libutil.so.1; do
        path=$(ldconfig -p | awk -v name=$name '$1 == name { print $NF; exit }')
        cp -L "$path" root/lib64/
    done
    cp -L /lib64/ld-linux-x86-64.so.2 root/lib64/
    inside() { # inside PROGRAM...: in a mount namespace of its own
        env -i PATH="$PATH" WEFT_TEST_DEVICE=cuda WEFT_PLUGIN_PATH=/card/plugins WEFT_SOURCE=/source \
            LD_LIBRARY_PATH=/lib64:/card/lib \
            unshare -m sh -c 'mount --bind /proc root/proc && exec chroot root "$@"' sh "$@" >printed 2>&1
    }
    inside /card/weft plugins list || failed "weft does not start" printed
    says printed "there is no NVIDIA driver"
    for program in root/card/programs/*; do
        status=0
        inside "/card/programs/${program##*/}" || status=$?
        { [ $status = 1 ] && grep -qE 'no NVIDIA driver|== 0. failed' printed; } ||
            failed "${program##*/} gives exit status $status without a driver" printed
    done
fi
exit $((failures > 0))
