"""`sprigs claims NAME`."""

from __future__ import annotations

from pathlib import Path

import click

from sprigs._claims import ClaimResult, choose, each_result, load_claims
from sprigs.cli._app import EXIT_FAILED, registry_of
from sprigs.cli._arguments import json_option, method_argument
from sprigs.cli._output import new_table, print_json, print_table, to_json

VERDICTS = {True: "holds", False: "DOES NOT HOLD", None: "not run"}


@click.command("claims")
@method_argument
@click.option("--fast", is_flag=True, help="Run the short version of each claim.")
@click.option("--only", metavar="ID", multiple=True, help="Run this claim alone; may be repeated.")
@json_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the JSON to a file as well, after every claim.",
)
@click.pass_context
def command(
    context: click.Context,
    name: str,
    fast: bool,
    only: tuple[str, ...],
    as_json: bool,
    output: Path | None,
) -> None:
    """Run the claims of a method's paper. Exits with 1 when one does not hold."""
    registry = registry_of(context)
    try:
        claims = choose(load_claims(name, registry), name, only or None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if output is not None:
        # Now, and not when the first claim has run for an hour.
        output.parent.mkdir(parents=True, exist_ok=True)
    results: list[ClaimResult] = []
    for result in each_result(name, claims, fast=fast, registry=registry):
        results.append(result)
        verdict = VERDICTS[result.outcome.holds]
        click.echo(
            f"[{len(results)}/{len(claims)}] {result.claim.id}: {verdict} ({result.seconds:.1f} s)",
            err=True,
        )
        if output is not None:
            content = [result.to_dict() for result in results]
            output.write_text(to_json(content) + "\n", encoding="utf-8")
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        _print(results)
    if any(result.outcome.holds is False for result in results):
        context.exit(EXIT_FAILED)


def _print(results: list[ClaimResult]) -> None:
    headings = ("claim", "paper", "bar", "measured", "baseline", "verdict", "note")
    table = new_table(*headings)
    for result in results:
        claim, outcome = result.claim, result.outcome
        table.add_row(
            f"{claim.id}: {claim.statement}",
            claim.paper,
            claim.bar,
            outcome.measured,
            outcome.baseline or "",
            VERDICTS[outcome.holds],
            outcome.note,
        )
    print_table(table)
