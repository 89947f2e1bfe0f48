"""In a child of the fork server: another directory of installed packages, as if it had been there from the start."""

import site
import sys


def add(directory):
    from coalmine.audits import registry
    from coalmine.reports.catalog import catalog

    site.addsitedir(directory)
    registry.audits.cache_clear()
    catalog.cache_clear()
    # What knows the audits from the moment at which it is imported is imported again.
    for name in [name for name in sys.modules if name.startswith(("coalmine.reports", "coalmine.cli"))]:
        del sys.modules[name]
