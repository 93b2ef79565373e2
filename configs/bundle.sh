#!/bin/sh
# One folder that runs on any x86-64 Linux with a C library as new as this machine's, from wherever it lies: the program,
# its tools and plugins, and all libraries that they need. Not in it: the C library, CUDA's own libraries and driver, and MPI's
# libraries, which have to be those of the machine's launcher.
#   configs/bundle.sh <build directory> <folder to make>
set -eu
build=$1
out=$2

# What every machine has, what belongs to CUDA, and what belongs to an MPI.
left_out='^(linux-vdso|ld-linux|libc\.|libm\.|libdl\.|librt\.|libpthread\.|libresolv\.|libutil\.|libcu|libnv|libnccl|libmpi)'

# A plugin whose library is left out goes with it.
needs_mpi() { objdump -p "$1" | grep -q 'NEEDED *libmpi'; }

rm -rf "$out.new"
mkdir -p "$out.new/plugins" "$out.new/lib" "$out.new/libexec"
cp "$build/weft" "$out.new/"
cp -r "$build/libexec/weft" "$out.new/libexec/"
for plugin in "$build"/plugins/weft-*.so; do
    needs_mpi "$plugin" || cp "$plugin" "$out.new/plugins/"
done
strip --strip-unneeded "$out.new/weft" "$out.new"/libexec/weft/* "$out.new"/plugins/*.so

for file in "$out.new/weft" "$out.new"/libexec/weft/* "$out.new"/plugins/*.so; do ldd "$file"; done | sort -u >"$out.new/needed"
if grep 'not found' "$out.new/needed" >&2; then
    echo "bundle.sh: these libraries are not on this machine" >&2
    exit 1
fi
awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' "$out.new/needed" | grep -Ev "$left_out" | while read -r name path; do
    cp -L "$path" "$out.new/lib/$name"
done
rm "$out.new/needed"

bytes=$(du -sb "$out.new" | cut -f 1)
rm -rf "$out"
mv "$out.new" "$out"
echo "bundled $out, $bytes bytes"
