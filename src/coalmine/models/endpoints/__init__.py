"""Models at OpenAI-compatible endpoints: what a server can really do, found out with as few requests as possible."""
