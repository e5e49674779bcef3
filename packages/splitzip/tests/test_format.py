"""The wire format: golden bytes, sizes, and every check of the header."""

import struct
import zlib

import numpy as np
import pytest
import xxhash
from golden import GOLDEN, GOLDEN_BITS, GOLDEN_BOOK
from hypothesis import given
from hypothesis import strategies as st

from sprigs_splitzip import (
    ChecksumError,
    Codebook,
    Codec,
    FormatError,
    LayoutMismatch,
    LimitError,
    SplitZipError,
    TruncatedError,
    compress,
    decompress,
    dense_size,
    inspect,
    max_encoded_size,
)
from sprigs_splitzip.floats import FORMATS, OPAQUE, plane_widths
from sprigs_splitzip.format import header_size, pad16, sections


def repaired(frame: bytes, at: int, value: bytes) -> bytes:
    """Overwrite header bytes and make the CRC right again, as an attacker would."""
    header_end = 64 * frame[6] if frame[6] in (2, 3) else 128
    data = bytearray(frame)
    data[at : at + len(value)] = value
    data[84:88] = bytes(4)
    data[84:88] = struct.pack("<I", zlib.crc32(bytes(data[:header_end])))
    return bytes(data)


def split(stream: bytes) -> list[bytes]:
    ends = np.cumsum([info.nbytes for info in inspect(stream).frames])
    return [stream[end - info.nbytes : end] for end, info in zip(ends, inspect(stream).frames, strict=True)]


def test_golden_frame_byte_for_byte(backend):
    codec = Codec(GOLDEN_BOOK, min_gain=-np.inf, backend=backend)
    assert codec.encode(GOLDEN_BITS, dtype="bf16", tag=7).tobytes() == GOLDEN
    assert np.array_equal(decompress(GOLDEN, backend=backend).view(np.uint16), GOLDEN_BITS)


def test_golden_frame_fields():
    info = inspect(GOLDEN).frames[0]
    assert (info.mode_name, info.code_bits, info.chunk_log2, info.shape, info.tag) == ("dict", 4, 13, (3, 3), 7)
    assert info.codebook == GOLDEN_BOOK
    assert (info.n_escapes, info.payload_size, info.nbytes, info.last) == (5, 80, 208, True)
    assert info.checksum == xxhash.xxh3_64_intdigest(GOLDEN[128:])


@pytest.mark.parametrize(
    ("width", "planes"), [(1, (1,)), (3, (2, 1)), (4, (4,)), (8, (8,)), (11, (8, 2, 1)), (24, (16, 8))]
)
def test_plane_widths(width, planes):
    assert plane_widths(width) == planes


def test_payload_without_escapes_has_the_size_worked_out_by_hand():
    # 8192 BF16 elements: 4 bits and 8 bits each, and two chunk starts padded to 16 bytes.
    assert dense_size(8192, "bf16") == 4096 + 8192 + 16
    x = np.full(8192, 0x3F80, np.uint16)
    assert Codec(GOLDEN_BOOK).encode(x, dtype="bf16").nbytes == 128 + 12304


@pytest.mark.parametrize("form", [f for f in FORMATS if f is not OPAQUE])
@pytest.mark.parametrize("code_bits", [3, 4])
@given(n=st.integers(1, 200_000), n_escapes=st.integers(0, 1000), chunk_log2=st.integers(10, 16))
def test_payload_size_is_the_sum_of_its_padded_sections(form, code_bits, n, n_escapes, chunk_log2):
    widths = [w for field in (code_bits, form.mantissa_bits + 1) for w in plane_widths(field)]
    chunks = -(-n // 2**chunk_log2)
    expected = sum(pad16(-(-n * w // 8)) for w in widths) + pad16(4 * (chunks + 1))
    assert dense_size(n, form, code_bits, chunk_log2) == expected
    layout = sections(form, code_bits, n, chunk_log2)
    assert layout.payload_size(n_escapes) == expected + pad16(2 * n_escapes) + pad16(n_escapes)


@given(extra=st.integers(-200, 20_000))
def test_max_escapes_is_the_largest_that_fits(extra):
    layout = sections(FORMATS[0], 4, 10_000, 13)
    most = layout.max_escapes(layout.positions + extra)
    if extra < 0:
        assert most < 0
    else:
        assert layout.payload_size(most) <= layout.positions + extra < layout.payload_size(most + 1)


@pytest.mark.parametrize(("ndim", "size"), [(0, 128), (4, 128), (5, 192), (8, 192)])
def test_header_sizes(ndim, size):
    assert header_size(ndim) == size
    frame = compress(np.zeros((1,) * ndim, np.float32))
    assert len(frame) <= size + 4
    assert inspect(frame).frames[0].header_size == size


def test_bound_counts_a_header_for_each_frame():
    assert max_encoded_size((1000, 3), "bf16") == 128 + 6000
    assert max_encoded_size((1000, 3), "bf16", frame_elems=1000) == 3 * 128 + 6000
    assert max_encoded_size((0,), "fp32") == 128


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (0, b"SPLY", FormatError),
        (4, b"\x02", FormatError),  # major version
        (5, b"\x01", None),  # a later minor version with nothing new in use
        (6, b"\x03", SplitZipError),  # header length of five dimensions
        (6, b"\x00", FormatError),
        (7, b"\x02", TruncatedError),  # not the last frame, but none follows
        (7, b"\x01", FormatError),  # consecutive exponents without the WINDOW flag
        (7, b"\x05", FormatError),  # unknown flag
        (8, b"\x09", FormatError),  # unknown dtype
        (8, b"\x00", FormatError),  # opaque bytes cannot be in DICT mode
        (8, b"\x04", FormatError),  # E5M2 has no exponent 116
        (9, b"\x02", FormatError),  # unknown mode
        (9, b"\x00", FormatError),  # RAW with escapes
        (10, b"\x05", FormatError),
        (10, b"\x03", FormatError),
        (11, b"\x09", FormatError),
        (11, b"\x11", FormatError),
        (12, b"\x09", FormatError),
        (13, b"\x02", FormatError),
        (13, b"\x00", FormatError),  # no checksum, but one is there
        (14, b"\x01", FormatError),  # reserved
        (16, struct.pack("<Q", 8), FormatError),
        (16, struct.pack("<Q", 2**64 - 1), FormatError),
        (24, struct.pack("<Q", 1), FormatError),
        (24, struct.pack("<Q", 2**64 - 1), FormatError),
        (32, struct.pack("<Q", 4), FormatError),  # the same padded size: only the chunk starts tell
        (32, struct.pack("<Q", 50), FormatError),
        (32, struct.pack("<Q", 2**63), LimitError),
        (40, struct.pack("<Q", 96), FormatError),
        (48, struct.pack("<Q", 0), ChecksumError),
        (64, b"\x75", FormatError),  # codebook not ascending
        (80, struct.pack("<I", 1), FormatError),  # frame index
        (88, b"\x01", FormatError),  # reserved
        (96, struct.pack("<Q", 4), FormatError),
        (96, struct.pack("<QQ", 2**63, 2**63), LimitError),  # the product overflows 64 bits
        (112, b"\x01", FormatError),  # beyond the dimensions
    ],
)
def test_header_with_a_wrong_field_and_a_right_crc(at, value, error):
    frame = repaired(GOLDEN, at, value)
    if error is None:
        assert np.array_equal(decompress(frame).view(np.uint16), GOLDEN_BITS)
    else:
        with pytest.raises(error):
            decompress(frame)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (128 + 32, struct.pack("<I", 1)),  # starts[0]
        (128 + 36, struct.pack("<I", 4)),  # starts[-1]
        (128 + 48, struct.pack("<H", 3)),  # two equal positions
        (128 + 50, struct.pack("<H", 1)),  # a position out of order
        (128 + 56, struct.pack("<H", 9)),  # a position beyond the elements
        (128 + 56, struct.pack("<H", 65535)),
    ],
)
def test_escape_sections_are_checked_even_when_the_checksum_is_right(backend, at, value):
    frame = bytearray(GOLDEN)
    frame[at : at + len(value)] = value
    frame = repaired(bytes(frame), 48, struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(frame[128:]))))
    with pytest.raises(FormatError):
        decompress(frame, backend=backend)


def test_escape_exponent_beyond_the_format(backend):
    x = np.array([0x7C, 0x04] * 8, np.uint8)
    frame = Codec(Codebook("e5m2", range(8, 24)), min_gain=-np.inf).encode(x, dtype="e5m2").tobytes()
    info = inspect(frame).frames[0]
    at = info.header_size + info.sections.exponents(info.n_escapes)
    assert frame[at] == 0x1F
    bad = bytearray(frame)
    bad[at] = 0x20
    bad = repaired(bytes(bad), 48, struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(bad[128:]))))
    with pytest.raises(FormatError, match="exponent"):
        decompress(bad, backend=backend)


def test_trailing_bytes():
    with pytest.raises(FormatError, match="allow_trailing"):
        decompress(GOLDEN + b"\0")
    assert np.array_equal(decompress(GOLDEN + b"\0", allow_trailing=True).view(np.uint16), GOLDEN_BITS)
    assert inspect(GOLDEN + b"xyz").trailing == 3


def test_streams_must_be_whole_in_order_and_of_one_tensor():
    x = np.arange(3000, dtype=np.float32)
    stream = compress(x, frame_elems=1000)
    frames = split(stream)
    assert len(frames) == 3
    assert np.array_equal(decompress(b"".join(frames)), x)
    other = split(compress(x + 1, frame_elems=1000, tag=1))
    for broken, error in [
        (frames[:2], TruncatedError),
        (frames[1:], FormatError),
        ([frames[0], frames[2], frames[1]], FormatError),
        ([frames[0], frames[0], frames[1], frames[2]], FormatError),
        ([frames[0], *other[1:]], LayoutMismatch),
        ([frames[0]], TruncatedError),
    ]:
        with pytest.raises(error):
            decompress(b"".join(broken))


def test_expectations():
    for options in ({"expected_dtype": "fp16"}, {"expected_shape": (9,)}, {"expected_tag": 8}):
        with pytest.raises(LayoutMismatch):
            decompress(GOLDEN, **options)
    decompress(GOLDEN, expected_dtype="bfloat16", expected_shape=(3, 3), expected_tag=7)


def test_max_bytes_is_checked_before_anything_is_allocated():
    huge = compress(np.zeros(64, np.uint8), dtype="opaque")
    claim = repaired(huge, 16, struct.pack("<Q", 2**30))
    claim = repaired(claim, 40, struct.pack("<Q", 2**30))
    claim = repaired(claim, 96, struct.pack("<Q", 2**30))
    with pytest.raises(LimitError):
        decompress(claim, max_bytes=2**20)
    with pytest.raises(TruncatedError):  # within max_bytes, but the bytes are not there
        decompress(claim)
