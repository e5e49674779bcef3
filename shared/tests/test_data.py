"""Data files: the mirror first, the checksum always, and no way out of the folder."""

import hashlib
import http.server
import sys
import threading

import pytest

import sprigs
from sprigs.data import DataFile

BYTES = b"three sprigs of thyme\n"
SHA = hashlib.sha256(BYTES).hexdigest()


def declared(name="set/herbs.txt", **changes):
    return DataFile(**{"method": "thyme", "name": name, "sha256": SHA, "licence": "CC0", **changes})


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    file = tmp_path / "mirror" / "thyme" / "set" / "herbs.txt"
    file.parent.mkdir(parents=True)
    file.write_bytes(BYTES)
    monkeypatch.setenv("SPRIGS_DATA", str(tmp_path / "mirror"))
    return file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("SPRIGS_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache"


@pytest.fixture
def server():
    """A web server that answers every request with BYTES."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(BYTES)))
            self.end_headers()
            self.wfile.write(BYTES)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/herbs.txt"
        running.shutdown()
        thread.join()


def test_mirror_comes_first(mirror):
    # Nothing listens at the address: it must not be asked.
    assert declared(url="http://127.0.0.1:9/herbs.txt").path() == mirror


def test_wrong_bytes_name_both_checksums(mirror):
    mirror.write_bytes(b"parsley")
    with pytest.raises(sprigs.DataMismatch) as caught:
        declared().path()
    assert SHA in str(caught.value)
    assert hashlib.sha256(b"parsley").hexdigest() in str(caught.value)
    assert not isinstance(caught.value, sprigs.DataUnavailable)


def test_unavailable_says_how_to_make_it(mirror, monkeypatch):
    file = declared("other.npz", how="python -m thyme.make writes it")
    with pytest.raises(sprigs.DataUnavailable, match=r"holds no thyme/other\.npz.*thyme\.make"):
        file.path()
    monkeypatch.setenv("SPRIGS_DATA", "")
    with pytest.raises(sprigs.DataUnavailable, match="SPRIGS_DATA is not set"):
        file.path()


def test_fetches_into_the_cache_once(cache, server, monkeypatch):
    file = declared(url=server)
    assert file.path() == cache / "sprigs" / "thyme" / "set" / "herbs.txt"
    assert file.path().read_bytes() == BYTES
    # The second time nothing is fetched.
    gone = declared(url="http://127.0.0.1:9/herbs.txt")
    assert gone.path().read_bytes() == BYTES


def test_a_download_with_other_bytes_is_no_data(cache, server):
    with pytest.raises(sprigs.DataMismatch, match=SHA):
        declared(url=server, sha256="0" * 64).path()
    assert not any(path.is_file() for path in cache.rglob("*"))


def test_a_failed_download_is_unavailable(cache):
    with pytest.raises(sprigs.DataUnavailable, match="cannot be fetched"):
        declared(url="http://127.0.0.1:9/herbs.txt").path()


def test_without_pooch(monkeypatch):
    monkeypatch.delenv("SPRIGS_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(sprigs.DataUnavailable, match=r"pip install 'sprigs\[data\]'"):
        declared(url="https://example.org/herbs.txt").path()


@pytest.mark.parametrize(
    "name",
    [
        "../other/secret", "a/../../b", "/etc/passwd", "a//b", "a/", "", ".", "a/./b", "..",
        "a\\..\\b", "C:x", "C:/x", "a\0b",
    ],
)  # fmt: skip
def test_no_way_out_of_the_folder(name):
    with pytest.raises(ValueError, match=r"DataFile\.name"):
        declared(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", "../thyme"),
        ("sha256", "abc"),
        ("sha256", SHA.upper()),
        ("licence", " "),
        ("url", "file:///etc/passwd"),
    ],
)
def test_refuses(field, value):
    with pytest.raises(ValueError, match=f"DataFile.{field}"):
        declared(**{field: value})
