"""`python -m coalmine` is `coalmine`."""

from coalmine.cli.main import main

main()
