"""In a child of the fork server: another directory of installed packages, as if it had been there from the start."""

import site
import sys


def add(directory):
    from coalmine.audits import registry

    site.addsitedir(directory)
    registry.audits.cache_clear()
    registry.catalog.cache_clear()
    # What knows the audits from the moment at which it is imported is imported again.
    for name in [name for name in sys.modules if name.startswith(("coalmine.reports", "coalmine.cli"))]:
        del sys.modules[name]
