"""A local model behind an OpenAI-compatible address: completions with the log-probability of every token."""
