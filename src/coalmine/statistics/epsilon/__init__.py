"""Lower bounds on epsilon from scores, and the verdict on a claimed epsilon."""
