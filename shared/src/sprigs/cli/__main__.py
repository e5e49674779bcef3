"""`python -m sprigs.cli`, for where scripts are not on the path."""

from sprigs.cli import main

main()
