"""Whether a directory is what was written: every file of ours in it, one by one."""
