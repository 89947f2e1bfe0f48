"""The steps of `coalmine audit`: what was tested, what was not, and why."""
