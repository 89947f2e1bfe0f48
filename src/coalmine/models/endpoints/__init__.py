"""Models behind an OpenAI-compatible endpoint: what a server can really do, asked as little as possible."""
