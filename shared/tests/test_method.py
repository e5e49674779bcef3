"""The card refuses what cannot work, and says what would."""

import dataclasses
import json

import pytest

import sprigs

GOOD = {"name": "split-zip", "title": "Does a job", "paper": None, "exports": {"Codec": "a.b:C"}}


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("name", "Split_Zip", ValueError, "lower-case"),
        ("name", "a--b", ValueError, "lower-case"),
        ("name", 3, TypeError, "must be a str, given 3"),
        ("title", "  ", ValueError, "must not be empty"),
        ("title", "one\ntwo", ValueError, "one line"),
        ("paper", "a title", TypeError, r"sprigs\.Paper"),
        ("exports", ["Codec"], TypeError, "map names"),
        ("exports", {"Codec": "a.b.C"}, ValueError, "'module:attribute', given 'a.b.C'"),
        ("exports", {"not a name": "a:b"}, ValueError, "identifier"),
        ("demo", "module", ValueError, "Method.demo"),
        ("claims", "a:", ValueError, "Method.claims"),
        ("extras", {"fast": ("numba",), "": ()}, ValueError, "must not be empty"),
        ("extras", {"fast": "numba"}, TypeError, r"tuple of str, given 'numba'"),
        ("capabilities", "codec", TypeError, "tuple of str"),
        ("capabilities", ("Codec Lossless",), ValueError, "dotted lower-case"),
        ("api", "1", TypeError, "must be an int"),
        ("api", True, TypeError, "must be an int"),
        ("api", 0, ValueError, "counts from 1"),
    ],
)
def test_card_refuses(field, value, error, message):
    with pytest.raises(error, match=message):
        sprigs.Method(**{**GOOD, field: value})


def test_card_is_frozen_and_owns_its_mappings():
    exports = {"Codec": "a.b:C"}
    card = sprigs.Method(**{**GOOD, "exports": exports})
    exports["Later"] = "a:b"
    assert dict(card.exports) == {"Codec": "a.b:C"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.name = "other"


def test_card_survives_json():
    paper = sprigs.Paper(title="T", url="https://example.org/t")
    card = sprigs.Method(**{**GOOD, "paper": paper, "extras": {"fast": ("numba",)}})
    back = json.loads(json.dumps(card.to_dict()))
    assert back["paper"] == {
        "title": "T",
        "url": "https://example.org/t",
        "authors": "",
        "venue": "NeurIPS 2026",
    }
    assert back["extras"] == {"fast": ["numba"]}
    assert back["api"] == sprigs.API_VERSION == 1


@pytest.mark.parametrize(("title", "url"), [("", "https://a"), ("T", "example.org")])
def test_paper_refuses(title, url):
    with pytest.raises(ValueError):
        sprigs.Paper(title=title, url=url)
