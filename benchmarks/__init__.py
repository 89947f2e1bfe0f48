"""Side-by-side ratios against the naive way, each from one run on one machine: absolute times mean little elsewhere."""
