"""The CUDA kernels, emulated: the reference's bytes, whatever the order in which threads and blocks run."""

import os
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sprigs_splitzip import Codebook, Codec, FormatError, decode_pages, encode_pages, kernels
from sprigs_splitzip.floats import BF16, E4M3FN, E5M2, FP16, FP32
from sprigs_splitzip.format import sections

sprigs_emulator = pytest.importorskip("sprigs_emulator")

from emulated import EmulatedDevice  # noqa: E402

try:
    sprigs_emulator.find_compiler()
except sprigs_emulator.CompilerNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)

FORMS = [BF16, FP16, FP32, E5M2, E4M3FN]
WINDOW = Codebook("bf16", range(113, 129))


def books(form, code_bits):
    size, top = 1 << code_bits, form.n_exponents
    yield Codebook(form, range(top - size, top), code_bits)
    if top > size:
        yield Codebook(form, [0, *range(top - size, top - 1)], code_bits)


def placed(data, offset):
    """Copy bytes to an address that is `offset` beyond a multiple of 64."""
    space = np.zeros(data.size + 128, np.uint8)
    start = -space.ctypes.data % 64 + offset
    target = space[start : start + data.size]
    target[:] = data
    return target


def encode(device, bits, book, *, single_pass=False, chunk_log2=13, limit=None, offset=0):
    """Return (escapes, payload as far as the limit allows)."""
    layout = sections(book.format, book.code_bits, bits.size, chunk_log2)
    limit = bits.size if limit is None else limit
    payload = placed(np.full(layout.payload_size(limit), 0xCD, np.uint8), offset)
    arguments = (device, placed(bits.view(np.uint8), offset), book, layout, bits.size, chunk_log2, payload, limit)
    if single_pass:
        return kernels.encode_single_pass(*arguments, kernels.Workspace()), payload
    return kernels.encode(*arguments), payload


def assert_same_bytes(device, bits, book, *, chunk_log2=13, offset=0):
    """Both encoders write the reference's bytes, and the decoder reads them back."""
    codec = Codec(book, checksum=False, min_gain=-np.inf, backend="numpy", chunk_log2=chunk_log2)
    frame = codec.encode(bits, dtype=book.format)
    expected = frame.buffer[frame.info.header_size :]
    for single_pass in (False, True):
        found, payload = encode(device, bits, book, single_pass=single_pass, chunk_log2=chunk_log2, offset=offset)
        assert found == frame.n_escapes
        assert np.array_equal(payload[: expected.size], expected)
    out = placed(np.full(bits.nbytes, 0xCD, np.uint8), offset)
    layout = frame.info.sections
    source = placed(expected, offset)
    kernels.decode(device, source, book, layout, bits.size, chunk_log2, frame.n_escapes, out)
    assert np.array_equal(out, bits.view(np.uint8))


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
@pytest.mark.parametrize("code_bits", [3, 4])
def test_all_patterns(form, code_bits):
    """All of 8 and 16 bits; of FP32 a grid of upper halves with random lower ones."""
    if form.itemsize <= 2:
        bits = np.arange(1 << 8 * form.itemsize, dtype=form.bits_dtype)
    else:
        low = np.random.default_rng(0).integers(0, 1 << 16, 1 << 16, np.uint32)
        bits = np.arange(1 << 16, dtype=np.uint32) << 16 | low
    for book in books(form, code_bits):
        assert_same_bytes(EmulatedDevice(interleave=3), bits, book)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
@pytest.mark.parametrize("code_bits", [3, 4])
def test_tails_under_every_check(form, code_bits):
    """With memcheck, racecheck, initcheck and synccheck on."""
    generator = np.random.default_rng(1)
    for n in (1, 7, 8, 9, 2047, 8193):
        bits = generator.integers(0, 256, n * form.itemsize, np.uint8).view(form.bits_dtype)
        for book in books(form, code_bits):
            assert_same_bytes(EmulatedDevice(checks="all", seed=n, interleave=2), bits, book)


@pytest.mark.parametrize("name", ["alice256", "constitution96", "minilm", "stories"])
def test_dumps(dump, name):
    bits = dump(name).reshape(-1)
    assert_same_bytes(EmulatedDevice(interleave=4), bits, Codebook.from_samples([bits], "bf16"))
    bits = bits[:200_000]
    assert_same_bytes(EmulatedDevice(), bits, Codebook.from_samples([bits], "bf16", code_bits=3))


def test_random_bits_and_all_escapes():
    bits = np.random.default_rng(2).integers(0, 1 << 16, 100_003, np.uint16)
    assert_same_bytes(EmulatedDevice(checks="all", interleave=2), bits, WINDOW)
    assert_same_bytes(EmulatedDevice(checks="all", interleave=2), np.zeros(30_001, np.uint16), WINDOW)


@pytest.mark.parametrize("chunk_log2", [10, 11, 15, 16])
def test_other_chunk_lengths(chunk_log2):
    bits = np.random.default_rng(3).integers(0, 1 << 16, 150_001, np.uint16)
    bits[::3] = 0x3F80
    assert_same_bytes(EmulatedDevice(checks="all", interleave=3), bits, WINDOW, chunk_log2=chunk_log2)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
@pytest.mark.parametrize("offset", [1, 2, 8])
def test_misaligned_arrays_take_the_byte_by_byte_kernels(form, offset):
    generator = np.random.default_rng(4)
    bits = generator.integers(0, 256, 9_001 * form.itemsize, np.uint8).view(form.bits_dtype)
    assert_same_bytes(EmulatedDevice(checks="all"), bits, next(books(form, 4)), offset=offset)


def test_fifty_schedules():
    """Blocks and threads in fifty random orders, several blocks alive at once."""
    bits = np.random.default_rng(5).normal(size=40_003).astype(np.float32).view(np.uint32) >> 16
    bits = bits.astype(np.uint16)
    bits[::50] = 1
    for seed in range(50):
        assert_same_bytes(EmulatedDevice(seed=seed, interleave=1 + seed % 5), bits, WINDOW)


@pytest.mark.parametrize("delayed", range(5))
def test_look_back_waits_for_a_delayed_block(delayed):
    bits = np.random.default_rng(6).integers(0, 1 << 16, 5 * 8192, np.uint16)
    assert_same_bytes(EmulatedDevice(checks="all", interleave=5, delay_block=delayed, seed=delayed), bits, WINDOW)


def test_epochs_stand_in_for_clearing():
    """States of earlier calls, longer and shorter ones, are not taken for this call's."""
    generator = np.random.default_rng(7)
    workspace = kernels.Workspace()
    device = EmulatedDevice(interleave=3)
    for n in (50_000, 9_000, 100_000, 100_000):
        bits = generator.integers(0, 1 << 16, n, np.uint16)
        frame = Codec(WINDOW, checksum=False, min_gain=-np.inf, backend="numpy").encode(bits, dtype="bf16")
        layout = sections(BF16, 4, n, 13)
        payload = np.zeros(layout.payload_size(n), np.uint8)
        kernels.encode_single_pass(device, bits.view(np.uint8), WINDOW, layout, n, 13, payload, n, workspace)
        assert np.array_equal(payload[: frame.info.payload_size], frame.buffer[frame.info.header_size :])
    assert workspace.epoch == 4


@pytest.mark.parametrize("single_pass", [False, True])
def test_beyond_the_limit_nothing_is_written_out_of_place(single_pass):
    """The payload ends right after what the limit allows; memcheck watches its end."""
    bits = np.zeros(20_000, np.uint16)
    bits[::7] = 0x3F80
    found, _ = encode(EmulatedDevice(checks="all", interleave=2), bits, WINDOW, single_pass=single_pass, limit=100)
    assert found is None


@given(st.integers(1, 2**28 - 1), st.lists(st.integers(0, 2**28 - 1), min_size=1, max_size=20))
@example(1, [0, 1, 2**28 - 1])
@example(2**27 + 1, [2**27, 2**27 + 1, 2**28 - 1])
def test_division_by_multiplication_is_exact(groups, numbers):
    magic, shift = kernels.Runs(np.zeros(1, np.uint64), 8 * groups).divisor
    assert 0 <= magic < 2**32
    for k in (*numbers, groups - 1, groups):
        assert (8 * k * magic >> 32) >> shift == k // groups


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
@pytest.mark.parametrize("code_bits", [3, 4])
@pytest.mark.parametrize(("run", "count"), [(16, 1), (48, 43), (1000, 21), (8192, 3)])
def test_runs_in_any_order(form, code_bits, run, count):
    """Both encoders and the decoder, in place, with every check on; what lies between the runs is left alone."""
    generator = np.random.default_rng(run)
    gap = 16 * generator.integers(1, 4)
    lengths = run * form.itemsize
    offsets = (generator.permutation(count) * (lengths + gap)).astype(np.uint64)
    runs = kernels.Runs(offsets, run)
    space = generator.integers(0, 256, count * (lengths + gap), np.uint8)
    gathered = np.concatenate([space[int(at) : int(at) + lengths] for at in offsets])
    gathered.view(form.bits_dtype)[::3] = (form.n_exponents - 2) << form.mantissa_bits
    for k, at in enumerate(offsets.tolist()):
        space[at : at + lengths] = gathered[k * lengths : (k + 1) * lengths]
    bits = gathered.view(form.bits_dtype)
    for book in books(form, code_bits):
        codec = Codec(book, checksum=False, min_gain=-np.inf, backend="numpy")
        frame = codec.encode(bits, dtype=form)
        layout, expected = frame.info.sections, frame.buffer[frame.info.header_size :]
        device = EmulatedDevice(checks="all", interleave=2)
        for shift in (0, 3):  # aligned, and not
            source = placed(space, shift)
            payload = placed(np.full(layout.payload_size(bits.size), 0xCD, np.uint8), 0)
            arguments = (device, source, book, layout, bits.size, 13, payload, bits.size)
            assert kernels.encode(*arguments, runs) == frame.n_escapes
            assert np.array_equal(payload[: expected.size], expected)
            payload[:] = 0xCD
            assert kernels.encode_single_pass(*arguments, kernels.Workspace(), runs) == frame.n_escapes
            assert np.array_equal(payload[: expected.size], expected)
            target = placed(np.full(space.size, 0xCD, np.uint8), shift)
            source = placed(expected, 0)
            kernels.decode(device, source, book, layout, bits.size, 13, frame.n_escapes, target, runs)
            left = target.copy()
            for k, at in enumerate(offsets.tolist()):
                assert np.array_equal(target[at : at + lengths], gathered[k * lengths : (k + 1) * lengths])
                left[at : at + lengths] = 0xCD
            assert (left == 0xCD).all()


def test_runs_of_no_whole_groups_are_refused():
    with pytest.raises(ValueError, match="multiple of 8"):
        kernels.Runs(np.zeros(1, np.uint64), 12)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("starts", struct.pack("<I", 1), "starts"),
        ("starts", struct.pack("<I", 2**31), "starts"),
        ("second start", struct.pack("<I", 2**32 - 1), "starts"),
        ("last start", struct.pack("<I", 5), "starts"),
        ("positions", struct.pack("<H", 65535), "positions"),
        ("positions", struct.pack("<H", 8192), "positions"),
        ("second position", struct.pack("<H", 0), "positions"),
        ("exponents", b"\x20", "exponent"),
    ],
)
def test_hostile_escapes_are_refused(where, value, said):
    """No index of the payload is trusted, and a chunk that is not sound is not written."""
    book = Codebook("e5m2", range(8, 24))
    bits = np.full(20_000, 0x30, np.uint8)
    bits[100::5000] = 0x7C
    frame = Codec(book, checksum=False, min_gain=-np.inf, backend="numpy").encode(bits, dtype="e5m2")
    layout, payload = frame.info.sections, frame.buffer[frame.info.header_size :].copy()
    at = {
        "starts": layout.starts,
        "second start": layout.starts + 4,
        "last start": layout.starts + 4 * layout.n_chunks,
        "positions": layout.positions,
        "second position": layout.positions + 2,
        "exponents": layout.exponents(frame.n_escapes),
    }[where]
    payload[at : at + len(value)] = np.frombuffer(value, np.uint8)
    out = np.full(bits.size, 0xCD, np.uint8)
    with pytest.raises(FormatError, match=said):
        kernels.decode(EmulatedDevice(checks="all"), payload, book, layout, bits.size, 13, frame.n_escapes, out)
    assert (out == 0xCD).any()


@pytest.mark.slow
def test_hostile_payloads_at_random():
    """Two thousand mutations of the escape sections: refused, or decoded within bounds; memcheck watches."""
    generator = np.random.default_rng(8)
    bits = (generator.normal(size=20_000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    bits[::40] = 1
    frame = Codec(WINDOW, checksum=False, min_gain=-np.inf, backend="numpy").encode(bits, dtype="bf16")
    layout, original = frame.info.sections, frame.buffer[frame.info.header_size :]
    refused = 0
    for _ in range(2_000):
        payload = original.copy()
        for at in generator.integers(layout.starts, payload.size, generator.integers(1, 4)):
            payload[at] = generator.integers(0, 256)
        out = np.zeros(bits.nbytes, np.uint8)
        try:
            kernels.decode(EmulatedDevice(checks="fast"), payload, WINDOW, layout, bits.size, 13, frame.n_escapes, out)
        except FormatError:
            refused += 1
    assert refused > 500


@pytest.mark.gpu
def test_on_a_device():
    """The same bytes from the real thing, through torch's tensors too."""
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(9)
    for form in FORMS:
        bits = generator.integers(0, 256, 100_003 * form.itemsize, np.uint8).view(form.bits_dtype)
        bits[::2] = (form.n_exponents - 2) << form.mantissa_bits
        codec = Codec(next(books(form, 4)), checksum=False, min_gain=-np.inf)
        expected = codec.encode(bits, dtype=form)
        on_device = codec.encode(cupy.asarray(bits), dtype=form)
        assert on_device.tobytes() == expected.tobytes()
        assert np.array_equal(codec.decode(on_device).get().view(form.bits_dtype), bits)
    tensor = torch.randn(300, 1001, device="cuda", dtype=torch.bfloat16)
    codec = Codec(WINDOW, checksum=False)
    frame = codec.encode(tensor)
    assert frame.tobytes() == codec.encode(tensor.cpu()).tobytes()
    out = torch.empty_like(tensor)
    codec.decode(frame, out=out)
    assert torch.equal(out.view(torch.int16), tensor.view(torch.int16))
    for page_dim in (0, 1):
        cache = torch.randn(2, 40, 16, 8, 64, device="cuda", dtype=torch.bfloat16).transpose(0, 1 - page_dim)
        ids = torch.randperm(cache.shape[page_dim])[:2].tolist()
        pages = encode_pages(cache, ids, codec, page_dim=page_dim)
        assert pages.tobytes() == encode_pages(cache.cpu(), ids, codec, page_dim=page_dim).tobytes()
        target = torch.zeros_like(cache)
        decode_pages(pages, target, ids, page_dim=page_dim)
        assert torch.equal(target.movedim(page_dim, 0)[ids], cache.movedim(page_dim, 0)[ids])


def test_the_compiler_used_is_said():
    assert "++" in str(sprigs_emulator.find_compiler()) or os.environ.get("CXX")
