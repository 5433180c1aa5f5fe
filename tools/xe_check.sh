#!/bin/sh
# xe_check.sh [options of xe_check.py]: compiles every OpenCL kernel variant for Lunar Lake, Battlemage and Panther Lake with Intel's offline compiler and
# checks the machine code (tools/xe_check.py says for what). The compiler is fetched from Debian testing into a private folder; where that is not possible
# (no network, the suite has moved on) it says so loudly and exits with 77.
set -eu
cd "$(dirname "$0")/.."
folder=${PERGOLA_OCLOC:-${XDG_CACHE_HOME:-$HOME/.cache}/pergola/ocloc}
if [ ! -x "$folder/ocloc" ] && ! sh tools/get_ocloc.sh forky "$folder"; then
  echo "SKIPPED: Intel's offline compiler could not be fetched from Debian testing; no kernel was checked for Intel GPUs" >&2
  exit 77
fi
if ! "$folder/ocloc" ids lnl-m > /dev/null 2>&1; then
  echo "SKIPPED: $folder/ocloc does not run here; no kernel was checked for Intel GPUs" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ls "$folder/debs" | grep -E '^(intel-ocloc|libigc2)' | sed 's/^/compiler: /'
${CXX:-g++} -std=c++20 -Isrc tools/opencl_variants.cc -o "$work/variants"
"$work/variants" > "$work/variants.txt"
python3 tools/xe_check.py --ocloc "$folder/ocloc" --variants "$work/variants.txt" "$@"
