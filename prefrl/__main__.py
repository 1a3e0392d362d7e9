"""``python -m prefrl``."""

from prefrl.cli import main

main()
