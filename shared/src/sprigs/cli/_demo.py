"""`sprigs demo NAME ...`."""

from sprigs.cli._card_command import card_command

command = card_command("demo", "Run the demo of a method.")
