"""The command line: a runner, and a record and one function for each command."""
