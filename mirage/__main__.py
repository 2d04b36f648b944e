"""``python -m mirage``."""

from mirage.cli.main import main

main()
