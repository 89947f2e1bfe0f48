"""The boundary to models: protocols, tokens and their text, adapters, conformance checks, a scripted model."""
