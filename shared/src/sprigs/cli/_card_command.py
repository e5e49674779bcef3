"""Commands that a card points to: `sprigs demo NAME ...` and `sprigs bench NAME ...`."""

from __future__ import annotations

import click

from sprigs import BadCard
from sprigs.cli._app import registry_of
from sprigs.cli._arguments import method_argument


def card_command(field: str, help: str) -> click.Command:
    """A command that hands its arguments on to the one in `field` of the named method's card."""

    @click.command(
        field,
        help=help,
        # Whatever follows NAME, --help included, belongs to the method.
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    @method_argument
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def command(context: click.Context, name: str, args: tuple[str, ...]) -> None:
        registry = registry_of(context)
        reference = getattr(registry.get(name), field)
        if reference is None:
            raise click.UsageError(f"{name} has no {field}")
        found = registry.resolve(name, reference)
        if not isinstance(found, click.Command):
            entry = registry.entry(name)
            raise BadCard(
                entry,
                f"{reference} must be a click.Command, it is a {type(found).__name__}",
                f"pip install --upgrade {entry.distribution}",
            )
        with found.make_context(name, list(args), parent=context) as inner:
            inner.command.invoke(inner)

    return command
