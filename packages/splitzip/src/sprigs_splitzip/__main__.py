"""`python -m sprigs_splitzip`: the same commands as `sprigs splitzip`."""

from .cli import main

main(prog_name="python -m sprigs_splitzip")
