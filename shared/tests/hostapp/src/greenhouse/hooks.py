"""The hooks of the host, with markers of its own."""

import pluggy

hookspec = pluggy.HookspecMarker("greenhouse")
hookimpl = pluggy.HookimplMarker("greenhouse")


@hookspec
def greenhouse_water(litres):
    """Give water; return what arrived."""
