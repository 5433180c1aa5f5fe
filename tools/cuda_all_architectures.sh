#!/bin/sh
# Compiles the CUDA backend for every architecture that it supports (A100 to RTX 50). Needs nvcc and about an hour of processor time, no GPU.
set -eu
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "SKIPPED: nvcc was not found, so no CUDA kernel was compiled" >&2
  exit 0
fi
cmake -S . -B build/cuda-all -G Ninja -DCMAKE_BUILD_TYPE=Release -DPERGOLA_CUDA=ON -DPERGOLA_TESTS=OFF \
  "-DPERGOLA_CUDA_ARCHITECTURES=80-real;86-real;89-real;90a-real;100-real;120"
cmake --build build/cuda-all --target backend_cuda
