"""A local model at an OpenAI-compatible address: completions with the log-probability of every token."""
