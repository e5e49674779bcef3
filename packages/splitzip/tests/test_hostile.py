"""Outside bytes: a SplitZipError or a tensor of the right shape, never a crash or a large allocation."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import xxhash
from golden import GOLDEN, GOLDEN_BITS
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_splitzip import CodebookBank, Codec, FormatError, SplitZipError, compress, decompress, inspect
from sprigs_splitzip.codebook import Codebook

MAX_BYTES = 1 << 20
WINDOW = Codebook("bf16", range(115, 131))


def attempt(data, backend, **options):
    """Decode; return None if refused."""
    try:
        return decompress(data, backend=backend, max_bytes=MAX_BYTES, **options)
    except SplitZipError:
        return None


def repair(data: bytearray) -> bytes:
    """Make header CRC and payload checksum of a single-frame stream right again."""
    if len(data) < 128:
        return bytes(data)
    header = 64 * data[6] if data[6] in (2, 3) and len(data) >= 64 * data[6] else 128
    if data[13] == 1:
        size = struct.unpack_from("<Q", data, 40)[0]
        data[48:56] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[header : header + min(size, len(data))])))
    data[84:88] = bytes(4)
    data[84:88] = struct.pack("<I", zlib.crc32(bytes(data[:header])))
    return bytes(data)


def test_every_value_of_every_byte_of_the_golden_frame(backend):
    """All 208 * 255 single-byte changes are noticed: no byte is unprotected."""
    step = 1 if backend == "numpy" else 7
    for at in range(len(GOLDEN)):
        for value in range(0, 256, step):
            if value != GOLDEN[at]:
                data = bytearray(GOLDEN)
                data[at] = value
                assert attempt(bytes(data), backend) is None, f"byte {at} = {value} went unnoticed"


def test_every_truncation_of_the_golden_frame(backend):
    for size in range(len(GOLDEN)):
        assert attempt(GOLDEN[:size], backend) is None


def test_without_checksum_a_payload_flip_gives_an_error_or_the_right_shape(backend):
    frame = Codec(Codebook("bf16", range(116, 132)), checksum=False, min_gain=-np.inf).encode(GOLDEN_BITS, dtype="bf16")
    data = frame.tobytes()
    survived = 0
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            result = attempt(bytes(changed), backend)
            assert at >= 128 or result is None, "the header has a checksum of its own"
            if result is not None:
                survived += 1
                assert result.shape == (3, 3)
    assert survived, "flips of mantissa bits cannot be noticed without a checksum"


@pytest.fixture(scope="module")
def frame_64k():
    generator = np.random.default_rng(5)
    x = (generator.normal(size=32_768).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    x[::97] = 0x0100
    frame = Codec(WINDOW).encode(x.reshape(128, 256), dtype="bf16")
    assert frame.mode == "dict"
    assert frame.n_escapes > 300
    return frame.tobytes()


def mutate(generator, data: bytes) -> bytearray:
    changed = bytearray(data)
    for _ in range(generator.integers(1, 6)):
        kind = generator.integers(0, 5)
        at = int(generator.integers(0, len(changed)))
        if kind <= 1:  # half of them in the header and the escape sections, where it hurts
            at = (
                int(generator.integers(0, 128))
                if kind == 0
                else int(generator.integers(len(changed) * 9 // 10, len(changed)))
            )
            changed[at] = int(generator.integers(0, 256))
        elif kind == 2:
            changed[at] ^= 1 << int(generator.integers(0, 8))
        elif kind == 3:
            del changed[at : at + int(generator.integers(1, 64))]
        else:
            changed[at:at] = generator.bytes(int(generator.integers(1, 64)))
        if len(changed) < 2:
            break
    return changed


@pytest.mark.parametrize("repaired", [False, True])
def test_ten_thousand_mutations(frame_64k, backend, repaired):
    """Also with checksums made right by an attacker, so that every later check stands alone."""
    generator = np.random.default_rng(11)
    original = decompress(frame_64k).view(np.uint16)
    accepted = 0
    for _ in range(5_000):
        changed = mutate(generator, frame_64k)
        data = repair(changed) if repaired else bytes(changed)
        result = attempt(data, backend)
        if result is not None:
            accepted += 1
            assert result.nbytes <= MAX_BYTES
            assert repaired or np.array_equal(result.view(np.uint16).reshape(original.shape), original)
    assert accepted < 5_000


@pytest.mark.parametrize("repaired", [False, True])
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400), at=st.integers(0, 207))
def test_arbitrary_bytes(repaired, data, at):
    for bytes_ in (data, GOLDEN[:at] + data):
        result = attempt(repair(bytearray(bytes_)) if repaired and len(bytes_) >= 128 else bytes_, "auto")
        assert result is None or result.nbytes <= MAX_BYTES


def test_header_fields_set_to_extremes(backend):
    """Every 64-bit field at its extremes, CRC right: nothing is allocated beyond what is really there."""
    tracemalloc.start()
    try:
        for at in (16, 24, 32, 40, 56, 96, 104):
            for value in (0, 1, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1):
                data = bytearray(GOLDEN)
                data[at : at + 8] = struct.pack("<Q", value)
                tracemalloc.reset_peak()
                attempt(repair(data), backend)
                assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BYTES
    finally:
        tracemalloc.stop()


def test_many_tiny_frames_that_claim_a_huge_tensor(backend):
    """Output is allocated only after all frames are seen, so a small input cannot ask for a large one."""
    one = bytearray(compress(np.zeros(4, np.float32), frame_elems=2))
    one[96:104] = struct.pack("<Q", 2**34)
    first = inspect(compress(np.zeros(4, np.float32), frame_elems=2)).frames[0]
    head = repair(bytearray(one[: first.nbytes]))
    tracemalloc.start()
    try:
        with pytest.raises(SplitZipError):
            decompress(head + bytes(one[first.nbytes :]), backend=backend, max_bytes=2**40)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"splitzip_bank":2,"codebooks":{}}',
        '{"splitzip_bank":1,"codebooks":{}}',
        '{"splitzip_bank":1,"codebooks":[]}',
        '{"splitzip_bank":1,"codebooks":{"a":1}}',
        '{"splitzip_bank":1,"codebooks":{"a":{"dtype":"bf16","code_bits":4,"values":[1,2]}}}',
        '{"splitzip_bank":1,"codebooks":{"a":{"dtype":"bf16","code_bits":4,"values":"0123456789abcdef"}}}',
        '{"splitzip_bank":1,"codebooks":{"a":{"dtype":"opaque","code_bits":4,"values":[]}}}',
        '{"splitzip_bank":1,"codebooks":{"a":{"dtype":"bf16","code_bits":true,"values":[1]}}}',
        "[" * 100_000,
    ],
)
def test_banks_from_hostile_files(tmp_path, text):
    path = tmp_path / "bank.json"
    path.write_text(text)
    with pytest.raises(SplitZipError):
        CodebookBank.load(path)


def test_a_bank_file_that_is_too_large(tmp_path):
    path = tmp_path / "bank.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(FormatError, match="large"):
        CodebookBank.load(path)
