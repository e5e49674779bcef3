"""A tool that the host ships itself, through the same door as everybody's."""

from greenhouse.hooks import hookimpl


@hookimpl
def greenhouse_water(litres):
    """Spill a tenth."""
    return 0.9 * litres
