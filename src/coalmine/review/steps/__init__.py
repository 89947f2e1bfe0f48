"""The steps of an audit, one module each."""
