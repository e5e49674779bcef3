"""The command group: built-in commands and methods, each imported when it is named."""

from __future__ import annotations

import importlib
from typing import Any

import click

from sprigs import Registry, __version__
from sprigs import registry as default_registry
from sprigs._errors import PluginError, SprigsError, UnknownMethod
from sprigs._names import BUILTIN_COMMANDS, normalise, suggestion

EPILOG = """\
Every installed method is a command too: `sprigs NAME --help`.

\b
Exit codes:
  0    all is well
  1    something measured fails: a claim, a comparison, a plugin (doctor)
  2    wrong usage, or an unknown method
  3    a plugin could not be loaded
  130  interrupted

\b
Environment:
  SPRIGS_BLOCK=a,b   never load these methods
  SPRIGS_STRICT=1    raise a plugin's own exception, with its traceback
  SPRIGS_DATA=DIR    read data files from DIR/METHOD/NAME
"""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PLUGIN = 3
EXIT_INTERRUPTED = 130


def registry_of(context: click.Context) -> Registry:
    """The registry that a host passed as `obj`, else the default one."""
    return context.find_object(Registry) or default_registry()


class App(click.Group):
    """The outermost group; lists methods without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Built-in commands first, then methods."""
        entries = registry_of(ctx).methods()
        return [*BUILTIN_COMMANDS, *(name for name in entries if name not in BUILTIN_COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A built-in command, or a stand-in for a method's own."""
        if cmd_name in BUILTIN_COMMANDS:
            module = importlib.import_module(f"sprigs.cli._{cmd_name}")
            command: click.Command = module.command
            return command
        entry = registry_of(ctx).methods().get(normalise(cmd_name))
        if entry is None:
            return None
        return MethodCommand(entry.name, short_help=entry.summary)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with near names of methods too.

        Raises:
            click.UsageError: there is no such command or method.
        """
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            hint = suggestion(name, self.list_commands(ctx))
            ctx.fail(f"no command or method {name!r}{hint}\n`sprigs list` shows the methods")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what went wrong in a few lines, and exit with its code."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except SprigsError as error:
            if registry_of(ctx).strict and isinstance(error, PluginError):
                raise
            click.echo(f"Error: {error}", err=True)
            ctx.exit(exit_code(error))


class MethodCommand(click.Command):
    """Stands for the commands of a method in listings; becomes them when it is run."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """The context of the real command.

        Raises:
            click.UsageError: the method has no commands.
            PluginError: the method, or its commands, cannot be loaded.
        """
        registry = default_registry() if parent is None else registry_of(parent)
        try:
            command = self._real(registry)
        except (PluginError, click.UsageError):
            # While a shell completes a line there is nobody to read an error.
            if extra.get("resilient_parsing"):
                return click.Context(self, parent=parent, info_name=info_name, **extra)
            raise
        return command.make_context(info_name, args, parent=parent, **extra)

    def _real(self, registry: Registry) -> click.Command:
        name = str(self.name)
        commands = registry.commands(name)
        if not commands:
            raise click.UsageError(f"{name} has no commands of its own; `sprigs info {name}` tells what it has")
        if len(commands) == 1 and commands[0].name == name:
            return commands[0]
        return click.Group(name, commands=commands, help=registry.get(name).title, no_args_is_help=True)


def exit_code(error: SprigsError) -> int:
    """The exit code for an error of the hub."""
    if isinstance(error, UnknownMethod):
        return EXIT_USAGE
    return EXIT_PLUGIN if isinstance(error, PluginError) else EXIT_FAILED


@click.command(cls=App, epilog=EPILOG, no_args_is_help=True)
@click.version_option(__version__, prog_name="sprigs", message="%(prog)s %(version)s")
def app() -> None:
    """Discover, try and check the methods installed here."""
