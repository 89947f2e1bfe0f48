"""What can be hidden: secret formats, compiled to acyclic automata over characters."""
