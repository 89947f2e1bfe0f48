"""Whether the tests notice a wrong operator: one is changed at a time, and the tests that run its line are run."""
