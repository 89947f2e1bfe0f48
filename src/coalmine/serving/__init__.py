"""A local model at an OpenAI-compatible address: completions and chats with the log-probability of every token."""
