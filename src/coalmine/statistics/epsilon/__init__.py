"""Lower bounds on epsilon from membership scores, and the verdict on a claimed epsilon."""
