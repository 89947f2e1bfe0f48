"""What the findings, figures and rules of every audit are made of."""
