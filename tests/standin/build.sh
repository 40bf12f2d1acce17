#!/usr/bin/env bash
# Builds the stand-in into a folder: libraries under the names of CUDA's, and a place for the kernels that they compile.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="$1"
mkdir -p "$out/kernels"

# Under a name of its own until it is whole, for others may be loading the last one.
library() {
    local name="$1"
    shift
    g++ -std=c++20 -O3 -Wall -Wextra -Wno-unused-parameter -fPIC -shared -Wl,-soname,"$name" "$@" -o "$out/$name.$$"
    mv "$out/$name.$$" "$out/$name"
}

cp "$here/device.h" "$out/device.h"
library libcuda.so.1 "$here/driver.cpp" "$here/threads.cpp" -ldl
library libnvrtc.so.13 "$here/nvrtc.cpp" "$out/libcuda.so.1" -Wl,-rpath,'$ORIGIN' -ldl
library libcublas.so.13 "$here/cublas.cpp" "$out/libcuda.so.1" -Wl,-rpath,'$ORIGIN'
library libcusolver.so.12 "$here/cusolver.cpp" "$out/libcuda.so.1" -Wl,-rpath,'$ORIGIN'
