"""`python -m coalmine`, which runs the `coalmine` command."""

from coalmine.cli.main import main

main()
