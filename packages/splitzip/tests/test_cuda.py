"""Arrays on a CUDA device in and out. CuPy is a stand-in whose kernels run under the emulator; no device is needed."""

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from sprigs_splitzip import (
    BufferTooSmall,
    Codebook,
    Codec,
    DeviceUnavailable,
    LayoutMismatch,
    SplitZipError,
    compress,
    cuda,
    decode_pages,
    decompress,
    encode_pages,
    inspect,
    paged,
)
from sprigs_splitzip.floats import BF16
from sprigs_splitzip.integrations import staging

pytest.importorskip("sprigs_emulator")

from emulated import Array, stand_in

WINDOW = Codebook("bf16", range(113, 129))


@pytest.fixture
def cupy(monkeypatch):
    module = stand_in()
    monkeypatch.setitem(sys.modules, "cupy", module)
    cuda._constant_on.cache_clear()
    yield module
    cuda._constant_on.cache_clear()


@pytest.fixture
def bits():
    x = np.random.default_rng(0).normal(size=(30, 1001)).astype(np.float32).view(np.uint32) >> 16
    return x.astype(np.uint16)


def test_round_trip_on_the_device(cupy, bits):
    codec = Codec(WINDOW, checksum=False)
    frame = codec.encode(cupy.asarray(bits), dtype="bf16", tag=5)
    assert isinstance(frame.buffer, Array)
    assert frame.mode == "dict"
    assert frame.tobytes() == codec.encode(bits, dtype="bf16", tag=5).tobytes()
    decoded = codec.decode(frame)
    assert isinstance(decoded, Array)
    assert decoded.dtype == np.uint16
    assert np.array_equal(decoded, bits)
    out = cupy.empty(bits.size, "uint16").reshape(bits.shape)
    assert decompress(frame.buffer, out=out, expected_tag=5) is out
    assert np.array_equal(out, bits)
    assert inspect(frame.buffer).shape == bits.shape
    with pytest.raises(DeviceUnavailable, match="tobytes"):
        _ = frame.memoryview


def test_host_bytes_to_the_device_are_verified_on_the_way(cupy, bits):
    buf = compress(bits, dtype="bf16", codebook=WINDOW, frame_elems=10_000)
    decoded = decompress(buf, like="cupy")
    assert np.array_equal(decoded, bits)
    assert len(inspect(buf).frames) == 4
    damaged = bytearray(buf)
    damaged[300] ^= 1
    with pytest.raises(SplitZipError):
        decompress(bytes(damaged), like="cupy")


def test_frames_one_by_one(cupy, bits):
    codec = Codec(WINDOW, checksum=False)
    x = cupy.asarray(bits)
    frames = list(codec.encode_frames(x, dtype="bf16", frame_elems=7_000))
    host = [f.tobytes() for f in codec.encode_frames(bits, dtype="bf16", frame_elems=7_000)]
    assert [f.tobytes() for f in frames] == host
    out = cupy.empty(bits.size, "uint16").reshape(bits.shape)
    for frame in reversed(frames):
        codec.decode_frame(frame, out)
    assert np.array_equal(out, bits)


def test_raw_frames(cupy):
    x = cupy.asarray(np.zeros((3, 1000), np.uint16))  # all escape
    codec = Codec(WINDOW, checksum=False)
    frame = codec.encode(x, dtype="bf16")
    assert frame.mode == "raw"
    assert frame.escape_rate > 0.1
    assert frame.tobytes() == codec.encode(np.zeros((3, 1000), np.uint16), dtype="bf16").tobytes()
    assert np.array_equal(codec.decode(frame), x)
    empty = codec.encode(cupy.asarray(np.zeros((0, 4), np.uint16)), dtype="bf16")
    assert codec.decode(empty).shape == (0, 4)


def test_encode_into(cupy, bits):
    codec = Codec(WINDOW, checksum=False)
    x = cupy.asarray(bits)
    out = cupy.empty(codec.max_encoded_size(x, "bf16"), "uint8")
    size = codec.encode_into(x, out, dtype="bf16")
    assert out[:size].get().tobytes() == codec.encode(bits, dtype="bf16").tobytes()
    with pytest.raises(BufferTooSmall):
        codec.encode_into(x, out[:-1], dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="both"):
        codec.encode_into(x, np.empty(out.size, np.uint8), dtype="bf16")


def test_formats_cupy_knows_itself(cupy):
    for dtype in (np.float16, np.float32):
        x = np.random.default_rng(1).normal(size=(9, 333)).astype(dtype)
        codec = Codec(Codebook.from_samples([x]), checksum=False)
        decoded = codec.decode(codec.encode(cupy.asarray(x)))
        assert decoded.dtype == dtype
        assert np.array_equal(decoded, x)


def test_strided_arrays_are_copied_in_and_refused_as_outputs(cupy, bits):
    codec = Codec(WINDOW, checksum=False)
    x = cupy.asarray(bits)
    assert np.array_equal(codec.decode(codec.encode(x.T, dtype="bf16")), bits.T)
    frame = codec.encode(x, dtype="bf16")
    with pytest.raises(SplitZipError, match="contiguous"):
        codec.decode(frame, out=cupy.empty(bits.size, "uint16").reshape(bits.shape[::-1]).T)


def test_refusals(cupy, bits):
    x = cupy.asarray(bits)
    with pytest.raises(DeviceUnavailable, match="checksum=False"):
        Codec(WINDOW).encode(x, dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="numpy"):
        Codec(WINDOW, checksum=False, backend="numpy").encode(x, dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="on the host"):
        Codec(WINDOW, checksum=False, backend="cuda").encode(bits, dtype="bf16")
    with pytest.raises(SplitZipError, match="bf16"):
        Codec(WINDOW, checksum=False).encode(x)
    with pytest.raises(SplitZipError, match="fp16"):
        Codec(WINDOW, checksum=False).encode(cupy.asarray(bits.view(np.float16)))
    frame = Codec(WINDOW, checksum=False).encode(x, dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="decode it there"):
        decompress(frame, like="numpy")
    with pytest.raises(DeviceUnavailable, match="decode it there"):
        decompress(frame, out=np.empty_like(bits))
    with pytest.raises(LayoutMismatch, match="dtype"):
        decompress(frame, out=cupy.empty(bits.size, "float16").reshape(bits.shape))
    with pytest.raises(LayoutMismatch, match="shape"):
        decompress(frame, out=cupy.empty(bits.size, "uint16"))
    with pytest.raises(SplitZipError, match="uint8"):
        decompress(cupy.asarray(bits))
    checked = cupy.asarray(np.frombuffer(compress(bits, dtype="bf16", codebook=WINDOW), np.uint8))
    with pytest.raises(DeviceUnavailable, match="verify=False"):
        decompress(checked)
    assert np.array_equal(decompress(checked, verify=False), bits)


def test_damaged_frames_on_the_device(cupy, bits):
    frame = Codec(WINDOW, checksum=False).encode(cupy.asarray(bits), dtype="bf16")
    layout = frame.info.sections
    damaged = frame.buffer.copy()
    damaged[frame.info.header_size + layout.starts] ^= 0xFF
    with pytest.raises(SplitZipError, match="starts"):
        decompress(damaged)
    header = frame.buffer.copy()
    header[20] ^= 1
    with pytest.raises(SplitZipError):
        decompress(header)
    with pytest.raises(SplitZipError):
        decompress(frame.buffer[:-16])


def test_without_cupy(monkeypatch, bits):
    monkeypatch.setitem(sys.modules, "cupy", None)
    x = bits.view(Array)
    with pytest.raises(DeviceUnavailable, match="pip install cupy"):
        Codec(WINDOW, checksum=False).encode(x, dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="pip install cupy"):
        decompress(compress(np.ones(3, ml_dtypes.bfloat16)), like="cupy")


def a_cache(shape, seed=0):
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32).view(np.uint32) >> 16
    return x.astype(np.uint16)


@pytest.mark.parametrize("page_dim", [0, 1, 2])
@pytest.mark.parametrize("inside", [(2, 16, 8), (4, 3, 64), (3, 5, 7)])
def test_pages_on_the_device(cupy, page_dim, inside):
    """In place where runs are whole groups of 8 elements, gathered where not: the same frame as on the host."""
    cache = a_cache((*inside[:page_dim], 12, *inside[page_dim:]))
    codec = Codec(WINDOW, checksum=False, chunk_log2=10)
    frame = encode_pages(cupy.asarray(cache), [3, 0, 3, 7], codec, page_dim=page_dim, dtype="bf16")
    assert isinstance(frame.buffer, Array)
    host = encode_pages(cache, [3, 0, 3, 7], codec, page_dim=page_dim, dtype="bf16")
    assert frame.tobytes() == host.tobytes()
    frame = encode_pages(cupy.asarray(cache), [3, 0, 7], codec, page_dim=page_dim, dtype="bf16")
    target = cupy.asarray(np.full(cache.shape, 0xABCD, np.uint16))
    decode_pages(frame, target, [11, 2, 5], page_dim=page_dim, dtype="bf16")
    expected = np.full(cache.shape, 0xABCD, np.uint16)
    np.moveaxis(expected, page_dim, 0)[[11, 2, 5]] = np.moveaxis(cache, page_dim, 0)[[3, 0, 7]]
    assert np.array_equal(target, expected)


def test_which_pages_the_kernels_take(cupy):
    def pieces(array, page_dim=0):
        return paged._pieces(array, page_dim, [1, 2], BF16)

    cache = cupy.asarray(a_cache((40, 16, 8)))
    whole = pieces(cache)
    assert np.shares_memory(whole.memory, cache)
    assert whole.runs.elems == 128
    assert whole.runs.offsets.tolist() == [256, 512]
    two = pieces(cupy.asarray(a_cache((2, 40, 16, 8))), page_dim=1)
    assert two.runs.offsets.tolist() == [256, 256 + 40 * 256, 512, 512 + 40 * 256]
    assert pieces(cupy.asarray(a_cache((4, 5, 7)))) is None
    assert pieces(cupy.asarray(a_cache((4, 16)))[:, ::-1]) is None
    assert pieces(cupy.asarray(a_cache((8, 1, 16)))[::2]).runs.elems == 16


def test_host_pages_to_the_device_are_verified_on_the_way(cupy):
    cache = a_cache((6, 16, 8))
    frame = encode_pages(cache, [1, 2], Codec(WINDOW, min_gain=-np.inf), dtype="bf16")
    target = cupy.asarray(np.zeros_like(cache))
    decode_pages(frame.tobytes(), target, [4, 0], dtype="bf16")
    assert np.array_equal(target[[4, 0]], cache[[1, 2]])
    damaged = bytearray(frame.tobytes())
    damaged[-20] ^= 1
    before = target.copy()
    with pytest.raises(SplitZipError):
        decode_pages(damaged, target, [4, 0], dtype="bf16")
    assert np.array_equal(target, before)
    on_device = cupy.asarray(np.frombuffer(frame.tobytes(), np.uint8))
    with pytest.raises(DeviceUnavailable, match="not"):
        decode_pages(on_device, cache, [4, 0], dtype="bf16")
    with pytest.raises(DeviceUnavailable, match="checksum=False"):
        encode_pages(target, [0], Codec(WINDOW), dtype="bf16")


def test_raw_pages_on_the_device(cupy):
    cache = np.zeros((4, 16, 64), np.uint16)  # all escape
    cache[2] = 7
    frame = encode_pages(cupy.asarray(cache), [2, 0], Codec(WINDOW, checksum=False), dtype="bf16")
    assert frame.mode == "raw"
    target = cupy.asarray(np.ones_like(cache))
    decode_pages(frame, target, [1, 3], dtype="bf16")
    assert np.array_equal(target[[1, 3]], cache[[2, 0]])
    assert (target[[0, 2]] == 1).all()


class Wire:
    """A transport within the process: writes are copies, messages go into lists."""

    def __init__(self):
        self.there, self.back = [], []

    def write(self, local, remote, announcement):
        ctypes.memmove(remote, local, announcement.length)
        self.there.append(announcement)

    def drain(self):
        pass


class End:
    def __init__(self, wire, incoming, outgoing):
        self.incoming, self.outgoing = incoming, outgoing
        self.write, self.drain = wire.write, wire.drain

    def poll(self):
        said = self.incoming[:]
        del self.incoming[: len(said)]
        return said

    def answer(self, announcement):
        self.outgoing.append(announcement)


@pytest.mark.parametrize("sent_from", ["host", "device"])
@pytest.mark.parametrize("slots", [("host", "host"), ("device", "device"), ("host", "device"), ("device", "host")])
@pytest.mark.parametrize("into", ["host", "device"])
def test_staging_between_host_and_device(cupy, bits, sent_from, slots, into):
    def memory(where):
        return cupy.empty(1 << 16, "uint8") if where == "device" else np.empty(1 << 16, np.uint8)

    here, there = (staging.Slots(memory(where), slot_bytes=1 << 14) for where in slots)
    checked = slots[0] == "host"
    sender = staging.StagedSender(Codec(WINDOW, checksum=checked), here, there.region)
    receiver = staging.StagedReceiver(there)
    wire = Wire()
    x = cupy.asarray(bits) if sent_from == "device" else bits
    out = cupy.empty(bits.size, "uint16").reshape(bits.shape) if into == "device" else np.zeros_like(bits)
    arguments = {"out": out, "verify": not (slots[1] == into == "device" and checked), "timeout": 5}
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(sender.send, End(wire, wire.back, None), x, dtype="bf16", timeout=5)
        received = receiver.receive(End(wire, wire.there, wire.back), **arguments)
        assert sending.result() < 0.8 * bits.nbytes
    assert received is out
    assert np.array_equal(np.asarray(received), bits)
