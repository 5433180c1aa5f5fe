#!/usr/bin/env python3
"""Reads an EXL3 folder with numpy alone, written from the description of the format and not from the program.

usage: exl3_reader.py FOLDER INNER SOURCE

INNER holds the inner weight of every linear as the program decodes it: they must be equal to the bit. SOURCE is the
dense model: the weights that the folder stands for must be near its weights.
"""

import json
import pathlib
import struct
import sys

import numpy as np

TYPES = {"F16": "<f2", "F32": "<f4", "I16": "<u2", "I32": "<u4", "BF16": "<u2"}


def tensors(path):
    """Name to array of one safetensors file; bfloat16 becomes float32."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    found = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(data[8 + length + begin : 8 + length + end], TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        found[name] = raw.reshape(entry["shape"])
    return found


def folder_tensors(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        found.update(tensors(path))
    return found


def states(trellis):
    """[k/16, n/16, 16 K] halfwords to the 256 states of every tile: 16 bits that end with each position's own K."""
    bits = trellis.shape[2] // 16
    words = np.ascontiguousarray(trellis).view("<u4")
    shifts = np.arange(31, -1, -1, dtype=np.uint32)
    stream = ((words[..., None] >> shifts) & 1).reshape(*words.shape[:2], 256 * bits)
    ends = (np.arange(256)[:, None] + 1) * bits + np.arange(-16, 0)[None, :]
    window = stream[..., ends % (256 * bits)].astype(np.uint32)
    return (window << np.arange(15, -1, -1, dtype=np.uint32)).sum(-1).astype(np.uint32)


def codebook(kind):
    """The binary16 value of every state."""
    state = np.arange(65536, dtype=np.uint64)
    if kind == "mul1":
        product = (state * 0x83DCD12D) & 0xFFFFFFFF
        total = sum((product >> shift) & 0xFF for shift in (0, 8, 16, 24)).astype(np.float64)
        return (total * (1774 / 2**18) - 3.453125).astype(np.float16)
    product = state * 0xCBAC1FED if kind == "mcg" else state * 89226354 + 64248484
    mixed = ((product & 0x8FFF8FFF) ^ 0x3B603B60).astype(np.uint32)
    low = (mixed & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
    high = (mixed >> 16).astype(np.uint16).view(np.float16).astype(np.float32)
    return (low + high).astype(np.float16)


def inner(trellis, values):
    """The 16x16 tiles of a trellis as one matrix [k, n]."""
    t = np.arange(256)
    row = 2 * ((t >> 3) & 3) + (t & 1) + 8 * ((t >> 1) & 1)
    column = (t >> 5) + 8 * ((t >> 2) & 1)
    tiles = np.empty((*trellis.shape[:2], 16, 16), np.float16)
    tiles[:, :, row, column] = values[states(trellis)]
    return tiles.transpose(0, 2, 1, 3).reshape(trellis.shape[0] * 16, trellis.shape[1] * 16)


def hadamard(matrix):
    """The orthonormal 128-point transform of every block of rows."""
    index = np.arange(128)
    parity = np.array([bin(i).count("1") & 1 for i in range(128)])
    h = (1.0 - 2.0 * parity[index[:, None] & index[None, :]]) / np.sqrt(128)
    return np.einsum("ij,bjn->bin", h, matrix.reshape(-1, 128, matrix.shape[1])).reshape(matrix.shape)


def effective(inner_weight, suh, svh):
    left = hadamard(inner_weight.astype(np.float64)) * suh.astype(np.float64)[:, None]
    return hadamard(left.T).T * svh.astype(np.float64)[None, :]


def source_weight(source, key):
    """[in, out] of a linear in the dense model, which may hold its experts fused."""
    if key + ".weight" in source:
        return source[key + ".weight"].T
    experts, _, rest = key.partition(".experts.")
    number, kind = rest.split(".")
    if kind == "down_proj":
        return source[experts + ".experts.down_proj"][int(number)].T
    both = source[experts + ".experts.gate_up_proj"][int(number)]
    half = both.shape[0] // 2
    return (both[:half] if kind == "gate_proj" else both[half:]).T


def main(folder, dump, dense):
    model, expected, source = folder_tensors(folder), tensors(dump), folder_tensors(dense)
    keys = [name[: -len(".trellis")] for name in model if name.endswith(".trellis")]
    assert keys and sorted(keys) == sorted(expected), "the two sides know different linears"
    tables = {kind: codebook(kind) for kind in ("mul1", "mcg", "3inst")}
    worst = 0.0
    for key in keys:
        kind = "mul1" if key + ".mul1" in model else "mcg" if key + ".mcg" in model else "3inst"
        trellis = model[key + ".trellis"]
        weight = inner(trellis, tables[kind])
        assert np.array_equal(weight.view(np.uint16), expected[key].view(np.uint16)), f"{key}: other values"
        wanted = source_weight(source, key).astype(np.float64)
        got = effective(weight, model[key + ".suh"], model[key + ".svh"])[: wanted.shape[0], : wanted.shape[1]]
        error = ((got - wanted) ** 2).sum() / (wanted**2).sum()
        bits = trellis.shape[2] // 16
        assert error < 4 * 4.0**-bits, f"{key}: error {error} at {bits} bits"
        worst = max(worst, error * 4.0**bits)
    print(f"{len(keys)} linears are the same; error at most {worst:.2f} of 4^-K")


if __name__ == "__main__":
    main(*sys.argv[1:])
