"""In a child: limits of the operating system itself."""

import resource


def limit_file_size(most):
    """No file of this process may be larger, what it prints included."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
