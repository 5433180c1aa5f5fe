#!/bin/sh
# One call on a machine with an NVIDIA GPU: builds, runs the CUDA tests and kernel checks, measures kernels and models, prints tables and keeps them.
#   tools/gpu_check.sh [RESULT_FOLDER] [MODEL_FOLDER [LOGITS.safetensors]]...
# PERGOLA_GPU_BIN: a folder with cuda_linear, cuda_model and backend_tests that were built elsewhere; nothing is built then.
set -eu
cd "$(dirname "$0")/.."
out=${1:-bench/results}
[ $# -gt 0 ] && shift
mkdir -p "$out"
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "no NVIDIA GPU answers on this machine" >&2
  exit 1
fi
bin=${PERGOLA_GPU_BIN:-}
if [ -z "$bin" ]; then
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DPERGOLA_CUDA=ON -DPERGOLA_BENCHMARKS=ON
  cmake --build build/gpu --target backend_tests cuda_linear cuda_model pergola
  bin=build/gpu/bin
fi
status=0
"$bin/backend_tests" --gtest_filter='Cuda*:*PackedLayout*' || status=1
"$bin/cuda_linear" check >"$out/cuda_linear_check.txt" || status=1
grep '^!' "$out/cuda_linear_check.txt" || echo "kernels: every case of $(grep -c err "$out/cuda_linear_check.txt") within tolerance and repeatable"
"$bin/cuda_linear" time | tee "$out/cuda_linear_time.txt"
while [ $# -gt 0 ]; do
  model=$1
  shift
  logits=
  case ${1:-} in *.safetensors) logits=$1 && shift ;; esac
  "$bin/cuda_model" "$model" ${logits:+--logits "$logits"} | tee "$out/cuda_model_$(basename "$model").txt" || status=1
done
exit $status
