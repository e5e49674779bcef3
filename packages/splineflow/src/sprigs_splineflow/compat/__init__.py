"""Matchers in the shape of other libraries, for their training loops."""
