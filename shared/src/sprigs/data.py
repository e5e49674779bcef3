"""Data files: declared with their checksum, read from a local mirror, else fetched and cached."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from sprigs._errors import DataMismatch, DataUnavailable
from sprigs._names import is_normal

__all__ = ["DataFile", "DataMismatch", "DataUnavailable"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class DataFile:
    """One file of public data.

    Attributes:
        method: the method it belongs to, the folder of the mirror.
        name: the file below that folder, with forward slashes.
        sha256: the checksum of its bytes, in lower-case hexadecimal.
        licence: the licence of the data, or where it is stated.
        url: the address of the original, None where there is no public one.
        how: how to get the file by other means, such as the script that makes it.
    """

    method: str
    name: str
    sha256: str
    licence: str
    url: str | None = None
    how: str = ""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: a field cannot be used, or `name` leads out of the method's folder.
        """
        if not is_normal(self.method):
            raise ValueError(f"DataFile.method must be the name of a method, given {self.method!r}")
        if not _is_inside(self.name):
            raise ValueError(
                "DataFile.name must be a plain relative path with forward slashes that stays in"
                f" the method's folder, given {self.name!r}"
            )
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"DataFile.sha256 must be 64 lower-case hexadecimal digits, given {self.sha256!r}")
        if not self.licence.strip():
            raise ValueError("DataFile.licence must say under which terms the data is given")
        if self.url is not None and not self.url.startswith(("https://", "http://", "ftp://")):
            raise ValueError(f"DataFile.url must be a web address or None, given {self.url!r}")

    def path(self) -> Path:
        """Where the file lies on this machine, its checksum verified.

        SPRIGS_DATA, a folder laid out as METHOD/NAME, comes first; then the public address, through
        pooch and the user's cache.

        Raises:
            DataUnavailable: it is in neither, or pooch is missing, or the download failed.
            DataMismatch: it is there with another checksum.
        """
        mirror = os.environ.get("SPRIGS_DATA")
        if mirror:
            local = Path(mirror, self.method, *PurePosixPath(self.name).parts)
            if local.is_file():
                self._verify(local)
                return local
        if self.url is not None:
            return self._fetch(self.url)
        looked = f"SPRIGS_DATA={mirror} holds no" if mirror else "SPRIGS_DATA is not set to find"
        raise DataUnavailable(
            f"{looked} {self.method}/{self.name}, which has no public address."
            f" {self.how or 'Nothing says how to make it.'}"
        )

    def _verify(self, path: Path) -> None:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != self.sha256:
            raise DataMismatch(f"{path} has SHA-256 {found}, expected {self.sha256}: delete it and get it anew")

    def _fetch(self, url: str) -> Path:
        try:
            import pooch  # type: ignore[import-untyped, unused-ignore]
        except ModuleNotFoundError as cause:
            raise DataUnavailable(
                f"fetching {self.method}/{self.name} needs pooch: pip install 'sprigs[data]'"
            ) from cause
        relative = PurePosixPath(self.name)
        folder = Path(pooch.os_cache("sprigs"), self.method, *relative.parent.parts)
        try:
            fetched = pooch.retrieve(url, f"sha256:{self.sha256}", fname=relative.name, path=folder)
        except ValueError as cause:
            # pooch's word for a download with another checksum; its message gives both.
            raise DataMismatch(f"{url} is not the declared {self.name}: {cause}") from cause
        except OSError as cause:
            raise DataUnavailable(f"{url} cannot be fetched: {cause}. {self.how}".strip()) from cause
        return Path(fetched)


def _is_inside(name: str) -> bool:
    """Whether a relative path is plain on every platform and has no way out of its folder."""
    parts = name.split("/")
    return (
        all(part not in ("", ".", "..") for part in parts)
        and "\\" not in name
        and "\0" not in name
        and not PureWindowsPath(name).drive
    )
