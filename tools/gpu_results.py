#!/usr/bin/env python3
"""Turns what tools/gpu_check.sh printed into JSON: cuda-linear.json from cuda_linear_time.txt, cuda-models.json from cuda_model_*.txt.

    gpu_results.py RESULT_FOLDER [--commit HASH]
"""

import argparse
import datetime
import glob
import json
import os
import re
import subprocess

NUMBER = r"([\d.e+-]+)"


def linear_case(line):
    """One timed case of `cuda_linear`, or nothing."""
    case = re.search(rf"(gemv )?\s*(\d+)x(\d+)\s+K(\d) (\w+)\s+(?:(\w+)\s+x(\d) )?rows\s+(\d+).*?err {NUMBER}", line)
    if case is None:
        return None
    gemv, k, n, bits, codebook, operand, blocks, rows, error = case.groups()
    result = {"k": int(k), "n": int(n), "bits": int(bits), "codebook": codebook, "rows": int(rows), "relative_error": float(error)}
    if gemv:
        plan, time = re.search(r"cluster (\d+)", line), re.search(rf"err \S+\s+{NUMBER} us", line)
        if time is None:
            return None
        return "gemv", result | {"cluster": int(plan[1]), "us": float(time[1])}
    time = re.search(rf"bare\s+{NUMBER} prepared\s+{NUMBER} fused\s+{NUMBER}", line)
    if time is None:
        return None
    bare, prepared, fused = map(float, time.groups())
    result |= {"operand": operand, "blocks": int(blocks), "bare_us": bare, "prepared_us": prepared}
    return "packed_gemm", result | ({"fused_us": fused} if fused > 0 else {})


def model_result(lines):
    """Everything that one run of `cuda_model` printed."""
    first = re.match(rf"(\S+) on (.*): loaded in {NUMBER} s", lines[0])
    result = {"model": os.path.basename(first[1].rstrip("/")), "load_seconds": float(first[3]), "decode": [], "prefill": [], "recorded_equals_eager": True}
    for line in lines[1:]:
        if step := re.search(rf"recorded decode, (\d+) rows(?:, context (\d+))?: (.*); {NUMBER} ms a step, {NUMBER} tokens/s", line):
            result["decode"].append({"rows": int(step[1]), "context": int(step[2] or 0), "ms": float(step[4]), "tokens_per_second": float(step[5])})
            result["recorded_equals_eager"] &= step[3].startswith("equal")
        elif prompt := re.search(rf"prefill (\d+): {NUMBER} tokens/s, {NUMBER} ms", line):
            result["prefill"].append({"tokens": int(prompt[1]), "ms": float(prompt[3]), "tokens_per_second": float(prompt[2])})
        elif distance := re.search(rf"chunks (\d+)\s+KL mean {NUMBER} median {NUMBER} max {NUMBER} top-1 {NUMBER}", line):
            result.setdefault("distance", []).append(
                {"piece": int(distance[1]), "kl_mean": float(distance[2]), "kl_median": float(distance[3]), "kl_max": float(distance[4]), "top1": float(distance[5]) / 100}
            )
    return first[2], result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--commit", help="what was measured (default: what is checked out)")
    arguments = parser.parse_args()
    commit = arguments.commit or subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    about = {"commit": commit, "date": datetime.date.today().isoformat()}

    def write(name, content):
        with open(os.path.join(arguments.folder, name), "w") as file:
            json.dump(about | content, file, indent=1)
            file.write("\n")

    path = os.path.join(arguments.folder, "cuda_linear_time.txt")
    if os.path.exists(path):
        with open(path) as file:
            lines = file.read().splitlines()
        cases = {"gemv": [], "packed_gemm": []}
        for line in lines:
            if found := linear_case(line):
                cases[found[0]].append(found[1])
        method = "CUDA graph over > 300 MB of rotating weights, median of 15 replays"
        write("cuda-linear.json", {"device": lines[0].split(",")[0], "command": "cuda_linear time", "method": method} | cases)
    models, device = [], ""
    for path in sorted(glob.glob(os.path.join(arguments.folder, "cuda_model_*.txt"))):
        with open(path) as file:
            lines = [line for line in file.read().splitlines() if not line.startswith("=====")]
        if lines and " loaded in " in lines[0]:
            device, result = model_result(lines)
            models.append(result)
    if models:
        write("cuda-models.json", {"device": device, "command": "cuda_model FOLDER [--logits FILE]", "method": "medians of 5", "models": models})


if __name__ == "__main__":
    main()
