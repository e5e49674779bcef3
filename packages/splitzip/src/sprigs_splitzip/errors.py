"""What splitzip raises. Every error about data or arguments is a `SplitZipError`, which is a `ValueError`."""


class SplitZipError(ValueError):
    """Base of every error that splitzip raises about its input."""


class FormatError(SplitZipError):
    """The bytes are not a valid SPLZ frame or stream of the versions this library reads."""


class TruncatedError(FormatError):
    """The bytes end before the frame or the stream does."""


class ChecksumError(SplitZipError):
    """A header CRC or payload checksum does not match: the bytes changed after they were written."""


class LimitError(SplitZipError):
    """The data would need more memory than `max_bytes`, or exceeds what one frame may hold."""


class LayoutMismatch(SplitZipError):
    """The frame holds another dtype, shape or tag than the caller expects."""


class UnsupportedDtype(SplitZipError):
    """The array's element type (or byte order) is not one that splitzip encodes."""


class BufferTooSmall(SplitZipError):
    """The output buffer cannot hold the frame."""


class DeviceUnavailable(SplitZipError):
    """The array lives on, or the backend needs, a device that this installation cannot use."""
