"""Every element format: ratio and speed on the same real cache, cast; 64 MiB, one thread, no checksum.

python benchmarks/bench_formats.py [-o benchmarks/results/formats.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ml_dtypes
import numpy as np

from sprigs.bench import compare
from sprigs_splitzip import Codebook, Codec
from sprigs_splitzip.bench import benchmark_input
from sprigs_splitzip.floats import BF16, E4M3FN, E5M2, FP16, FP32

BYTES = 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    _, one, name = benchmark_input(1.0)
    values = one.view(ml_dtypes.bfloat16)
    rows, raw = [], {}
    for form in (BF16, FP16, FP32, E5M2, E4M3FN):
        bits = values.astype(form.dtype).view(form.bits_dtype)
        if form is FP32:  # a BF16 value has no lower mantissa; give it one, as real FP32 data has
            bits = bits | np.random.default_rng(0).integers(0, 1 << 16, bits.size, np.uint32)
        x = np.resize(bits, BYTES // form.itemsize)
        target = np.empty_like(x)
        for code_bits in (4, 3):
            codec = Codec(Codebook.from_samples([bits], form, code_bits=code_bits), checksum=False, threads=1)
            frame = codec.encode(x, dtype=form)
            room = np.empty(codec.max_encoded_size(x, form), np.uint8)

            def encode(codec=codec, x=x, room=room, form=form):
                return codec.encode_into(x, room, dtype=form)

            def decode(codec=codec, frame=frame, target=target):
                return codec.decode(frame, out=target)

            def copy(target=target, x=x):
                np.copyto(target, x)

            def exact(results, x=x, frame=frame):
                assert results["encode"] == frame.nbytes
                assert np.array_equal(results["decode"], x)

            functions = {"copy": copy, "encode": encode, "decode": decode}
            result = compare(functions, check=exact, rounds=7, nbytes=BYTES)
            raw[f"{form.name}, {code_bits} bits"] = result.to_dict()
            ratio = codec.encode(bits, dtype=form).ratio
            mode = "raw" if frame.mode == "raw" else f"{100 * frame.escape_rate:.2f} %"
            rates = (f"{result.rates[key] / 1e9:.1f}" for key in ("encode", "decode", "copy"))
            rows.append([form.name, code_bits, f"{ratio:.3f}", mode, *rates])
    columns = ["format", "code bits", "ratio", "escapes", "encode GB/s", "decode GB/s", "copy GB/s"]
    table = {"columns": columns, "rows": rows}
    for line in (columns, *rows):
        print(" | ".join(map(str, line)))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"input": f"{name}, cast and tiled", "table": table, "measurements": raw}
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
