from .__about__ import __version__ as __version__
from .bank import CodebookBank as CodebookBank
from .bank import EscapeMonitor as EscapeMonitor
from .codebook import Codebook as Codebook
from .codec import Codec as Codec
from .codec import Encoded as Encoded
from .codec import compress as compress
from .codec import decompress as decompress
from .codec import inspect as inspect
from .errors import BufferTooSmall as BufferTooSmall
from .errors import ChecksumError as ChecksumError
from .errors import DeviceUnavailable as DeviceUnavailable
from .errors import FormatError as FormatError
from .errors import LayoutMismatch as LayoutMismatch
from .errors import LimitError as LimitError
from .errors import SplitZipError as SplitZipError
from .errors import TruncatedError as TruncatedError
from .errors import UnsupportedDtype as UnsupportedDtype
from .floats import FloatFormat as FloatFormat
from .floats import float_format as float_format
from .format import FrameInfo as FrameInfo
from .format import StreamInfo as StreamInfo
from .format import dense_size as dense_size
from .format import max_encoded_size as max_encoded_size
from .paged import decode_pages as decode_pages
from .paged import encode_pages as encode_pages
from .paged import layout_fingerprint as layout_fingerprint
from .statistics import Report as Report
from .statistics import best_ratio as best_ratio
from .statistics import exponent_entropy as exponent_entropy
from .statistics import exponent_histogram as exponent_histogram
from .statistics import report as report
from .stream import StreamDecoder as StreamDecoder
from .stream import StreamEncoder as StreamEncoder
from .transfer import AdaptivePolicy as AdaptivePolicy
from .transfer import CodecProfile as CodecProfile
from .transfer import LinkProfile as LinkProfile
from .transfer import Timeline as Timeline
from .transfer import breakeven_bandwidth as breakeven_bandwidth
from .transfer import measure_codec as measure_codec
from .transfer import pipelined_speedup as pipelined_speedup
from .transfer import serial_speedup as serial_speedup
from .transfer import simulate as simulate
from .transfer import transfer_time as transfer_time

__all__ = [
    "AdaptivePolicy",
    "BufferTooSmall",
    "ChecksumError",
    "Codebook",
    "CodebookBank",
    "Codec",
    "CodecProfile",
    "DeviceUnavailable",
    "Encoded",
    "EscapeMonitor",
    "FloatFormat",
    "FormatError",
    "FrameInfo",
    "LayoutMismatch",
    "LimitError",
    "LinkProfile",
    "Report",
    "SplitZipError",
    "StreamDecoder",
    "StreamEncoder",
    "StreamInfo",
    "Timeline",
    "TruncatedError",
    "UnsupportedDtype",
    "best_ratio",
    "breakeven_bandwidth",
    "compress",
    "decode_pages",
    "decompress",
    "dense_size",
    "encode_pages",
    "exponent_entropy",
    "exponent_histogram",
    "float_format",
    "inspect",
    "layout_fingerprint",
    "max_encoded_size",
    "measure_codec",
    "pipelined_speedup",
    "report",
    "serial_speedup",
    "simulate",
    "transfer_time",
]
