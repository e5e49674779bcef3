"""Claims: what holds, what does not, what could not be run, and that one does not stop the next."""

import pytest

import sprigs

KEYS = [
    "id", "statement", "paper", "here", "bar", "measured", "baseline", "holds", "note", "seconds",
    "command",
]  # fmt: skip


@pytest.fixture
def registry(here, add_good):
    add_good(here)
    return sprigs.Registry()


def test_all_outcomes(registry):
    results = [r.to_dict() for r in sprigs.run_claims("herb", fast=True, registry=registry)]
    assert all(list(result) == KEYS for result in results)
    verdicts = {result["id"]: result["holds"] for result in results}
    assert verdicts == {
        "holds": True,
        "fails": False,
        "raises": False,
        "no-data": None,
        "no-extra": None,
    }
    notes = {result["id"]: result["note"] for result in results}
    assert notes["raises"] == "raised RuntimeError: broken"
    assert notes["no-data"] == "no such file"
    assert "pip install 'dist-herb[fast]'" in notes["no-extra"]
    assert results[0]["measured"] == "3 (fast: True)"
    assert results[0]["command"] == "sprigs claims herb --only holds --fast"


def test_only(registry):
    (result,) = sprigs.run_claims("herb", only="holds", registry=registry)
    assert result.to_dict()["measured"] == "3 (fast: False)"
    assert result.command == "sprigs claims herb --only holds"
    two = sprigs.run_claims("herb", only=["fails", "holds"], registry=registry)
    assert [r.claim.id for r in two] == ["holds", "fails"]
    with pytest.raises(ValueError, match="no claim nope; it has holds, fails"):
        sprigs.run_claims("herb", only="nope", registry=registry)


def test_strict_lets_exceptions_through(registry, monkeypatch):
    monkeypatch.setenv("SPRIGS_STRICT", "1")
    with pytest.raises(RuntimeError, match="broken"):
        sprigs.run_claims("herb", registry=registry)


def test_claims_that_are_none(here, add_good):
    add_good(here, files={"claims.py": "CLAIMS = ['a claim']\n"})
    with pytest.raises(sprigs.BadCard, match=r"sequence of sprigs\.Claim"):
        sprigs.run_claims("herb", registry=sprigs.Registry())


def test_no_claims(here):
    here.add("plain")
    with pytest.raises(ValueError, match="plain states no claims"):
        sprigs.run_claims("plain", registry=sprigs.Registry())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"measured": 3, "holds": True}, TypeError, "must be str"),
        ({"measured": "3", "holds": 1}, TypeError, r"write bool\(\.\.\.\)"),
        ({"measured": "3", "holds": True, "baseline": 1}, TypeError, "baseline"),
        ({"measured": "", "holds": None}, ValueError, "say in Outcome.note why"),
    ],
)
def test_outcome_refuses(fields, error, message):
    with pytest.raises(error, match=message):
        sprigs.Outcome(**fields)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("id", "", ValueError),
        ("bar", " ", ValueError),
        ("paper", 3, TypeError),
        ("run", 1, TypeError),
    ],
)
def test_claim_refuses(field, value, error):
    fields = dict.fromkeys(("id", "statement", "paper", "here", "bar"), "text")
    with pytest.raises(error, match=f"Claim.{field}"):
        sprigs.Claim(**{**fields, "run": print, field: value})


def test_a_run_that_returns_something_else_does_not_hold(here, add_good):
    text = (
        "import sprigs\nCLAIMS = [sprigs.Claim(id='a', statement='s', paper='p', here='h', bar='b',"
        " run=lambda fast: True)]\n"
    )
    add_good(here, files={"claims.py": text})
    (result,) = sprigs.run_claims("herb", registry=sprigs.Registry())
    assert result.outcome.holds is False
    assert "must return a sprigs.Outcome" in result.outcome.note
