"""Claims of a paper as code: what it says, what is run here, and what came out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sprigs._errors import BadCard, DataUnavailable, MissingExtra
from sprigs._loading import called_failure, describe
from sprigs._registry import registry as default_registry

if TYPE_CHECKING:
    from sprigs._registry import Registry


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run of a claim measured.

    Attributes:
        measured: the figure, with its unit.
        baseline: the figure it is held against, where there is one.
        holds: whether the bar is met; None where it could not be run here.
        note: why it could not be run, or anything the reader should know.
    """

    measured: str
    baseline: str | None = None
    holds: bool | None
    note: str = ""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            TypeError: a field has the wrong type.
            ValueError: `holds` is None and no note says why.
        """
        if not isinstance(self.measured, str) or not isinstance(self.note, str):
            raise TypeError("Outcome.measured and Outcome.note must be str")
        if self.baseline is not None and not isinstance(self.baseline, str):
            raise TypeError(f"Outcome.baseline must be a str or None, given {self.baseline!r}")
        if self.holds is not None and not isinstance(self.holds, bool):
            raise TypeError(
                f"Outcome.holds must be a bool or None, given {self.holds!r};"
                " write bool(...) around a comparison of arrays"
            )
        if self.holds is None and not self.note.strip():
            raise ValueError("Outcome.holds is None: say in Outcome.note why it could not be run")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of a paper.

    Attributes:
        id: a short name, unique in the method.
        statement: the claim in our words.
        paper: the paper's figure.
        here: what is run here, and on which data.
        bar: the margin stated beforehand, at which the claim counts as holding.
        run: called with `fast` (True: within seconds), returns the `Outcome`.
    """

    id: str
    statement: str
    paper: str
    here: str
    bar: str
    run: Callable[[bool], Outcome]

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            TypeError: a text is no string, or `run` cannot be called.
            ValueError: a text is empty.
        """
        for name in ("id", "statement", "paper", "here", "bar"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"Claim.{name} must be a str, given {value!r}")
            if not value.strip():
                raise ValueError(f"Claim.{name} must not be empty")
        if not callable(self.run):
            raise TypeError(f"Claim.run must be callable, given {self.run!r}")


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """A claim, its outcome, how long it took and how to run it again."""

    claim: Claim
    outcome: Outcome
    seconds: float
    command: str

    def to_dict(self) -> dict[str, object]:
        """The result as plain containers, ready for JSON."""
        return {
            "id": self.claim.id,
            "statement": self.claim.statement,
            "paper": self.claim.paper,
            "here": self.claim.here,
            "bar": self.claim.bar,
            "measured": self.outcome.measured,
            "baseline": self.outcome.baseline,
            "holds": self.outcome.holds,
            "note": self.outcome.note,
            "seconds": round(self.seconds, 3),
            "command": self.command,
        }


def run_claims(
    method_name: str,
    *,
    fast: bool = False,
    only: str | Iterable[str] | None = None,
    registry: Registry | None = None,
) -> list[ClaimResult]:
    """Run the claims of a method, all of them or those with the ids in `only`.

    A claim whose data or extra is missing is not run, and its note says so. A claim that raises
    anything else does not hold, and its note says what it raised; where SPRIGS_STRICT is set, the
    exception goes on its way.

    Raises:
        UnknownMethod: nothing installed has this name.
        PluginError: the plugin cannot be loaded, or its claims are not claims.
        ValueError: the method has no claims, or none with such an id.
    """
    registry = registry or default_registry()
    claims = choose(load_claims(method_name, registry), method_name, only)
    return list(each_result(method_name, claims, fast=fast, registry=registry))


def load_claims(method_name: str, registry: Registry) -> Sequence[Claim]:
    """The claims a card points to; empty where it points to none.

    Raises:
        UnknownMethod: nothing installed has this name.
        PluginError: the plugin cannot be loaded, or its claims are not claims.
    """
    method = registry.get(method_name)
    if method.claims is None:
        return ()
    claims = registry.resolve(method_name, method.claims)
    if not isinstance(claims, Sequence) or not all(isinstance(c, Claim) for c in claims):
        entry = registry.entry(method_name)
        raise BadCard(
            entry,
            f"{method.claims} must be a sequence of sprigs.Claim",
            f"pip install --upgrade {entry.distribution}",
        )
    return claims


def choose(claims: Sequence[Claim], method_name: str, only: str | Iterable[str] | None) -> Sequence[Claim]:
    """The claims with the wanted ids, in their own order; all where `only` is None.

    Raises:
        ValueError: there is nothing to choose from, or an id is not there.
    """
    if not claims:
        raise ValueError(f"{method_name} states no claims")
    if only is None:
        return claims
    wanted = {only} if isinstance(only, str) else set(only)
    known = [claim.id for claim in claims]
    if unknown := sorted(wanted.difference(known)):
        raise ValueError(f"{method_name} has no claim {', '.join(unknown)}; it has {', '.join(known)}")
    return [claim for claim in claims if claim.id in wanted]


def each_result(method_name: str, claims: Iterable[Claim], *, fast: bool, registry: Registry) -> Iterator[ClaimResult]:
    """Run the claims one after the other, and give each result as soon as it is there."""
    for claim in claims:
        began = time.perf_counter()
        outcome = _run(claim, method_name, fast, registry)
        seconds = time.perf_counter() - began
        command = ["sprigs", "claims", method_name, "--only", claim.id, *["--fast"] * fast]
        yield ClaimResult(claim=claim, outcome=outcome, seconds=seconds, command=shlex.join(command))


def _run(claim: Claim, method_name: str, fast: bool, registry: Registry) -> Outcome:
    try:
        outcome = claim.run(fast)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"Claim.run must return a sprigs.Outcome, it returned {outcome!r}")
        return outcome
    except DataUnavailable as reason:
        return Outcome(measured="", holds=None, note=str(reason))
    except Exception as error:
        failure = called_failure(registry.entry(method_name), "the claim", error, registry.get(method_name).extras)
        if isinstance(failure, MissingExtra):
            return Outcome(measured="", holds=None, note=f"{failure.problem}: {failure.fix}")
        if registry.strict:
            raise
        # A claim is a test: one that raises has not held, and the next ones are run all the same.
        return Outcome(measured="", holds=False, note=f"raised {describe(error)}")
