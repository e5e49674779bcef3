"""The version of the distribution, alone in its file so that the build can read it."""

__version__ = "0.1.0"
