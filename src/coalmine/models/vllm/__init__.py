"""Models that vLLM runs: scores and ranks from the log-probabilities of prompts, without prefix caching."""
