#!/bin/sh
# One call on a machine with an NVIDIA GPU: builds, verifies, runs the CUDA tests and kernel checks, measures kernels and models, prints tables and keeps them
# (cuda-linear.json and cuda-models.json beside the text that they come from).
#   tools/gpu_check.sh [RESULT_FOLDER] [MODEL_FOLDER [LOGITS.safetensors]]...
# The first model is also the one that the memory checkers and 1,000 requests run on: give a small one.
# PERGOLA_GPU_BIN: a folder with pergola, cuda_linear, cuda_model and backend_tests that were built elsewhere; nothing is built then.
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
small=${1:-}
status=0
"$bin/backend_tests" --gtest_filter='Cuda*:*PackedLayout*' || status=1
"$bin/pergola" verify --backend cuda ${small:+"$small"} >"$out/cuda_verify.txt" 2>&1 || status=1
grep MISS "$out/cuda_verify.txt" || tail -1 "$out/cuda_verify.txt"
"$bin/cuda_linear" check >"$out/cuda_linear_check.txt" || status=1
grep '^!' "$out/cuda_linear_check.txt" || echo "kernels: every case of $(grep -c err "$out/cuda_linear_check.txt") within tolerance and repeatable"
"$bin/cuda_linear" time | tee "$out/cuda_linear_time.txt"
while [ $# -gt 0 ]; do
  model=$1
  shift
  logits=
  case ${1:-} in *.safetensors) logits=$1 && shift ;; esac
  report=$out/cuda_model_$(basename "$model").txt
  "$bin/cuda_model" "$model" ${logits:+--logits "$logits"} >"$report" || status=1
  # Attention reads a long context's cache, which is empty here.
  "$bin/cuda_model" "$model" --context 8192 --rows 1 --prompts "" | grep recorded >>"$report" || status=1
  cat "$report"
done
if [ -n "$small" ]; then
  # racecheck follows no barriers of the copy engine: it says "error" of what those order.
  for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      timeout 600 compute-sanitizer --tool $tool "$bin/cuda_model" "$small" --rows 1,8 --prompts 100 --max-rows 128 >"$out/cuda_$tool.txt" 2>&1 || status=1
      tail -1 "$out/cuda_$tool.txt"
    else
      echo "SKIPPED: $tool (compute-sanitizer is not there)"
    fi
  done
  python3 bench/gpu_memory.py "$bin/pergola" "$small" >"$out/cuda_memory.json" || status=1
  cat "$out/cuda_memory.json"
fi
python3 tools/gpu_results.py "$out"
exit $status
