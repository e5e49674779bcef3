"""`sprigs bench NAME ...`."""

from sprigs.cli._card_command import card_command

command = card_command("bench", "Run the benchmark of a method.")
