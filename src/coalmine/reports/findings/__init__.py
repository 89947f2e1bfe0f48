"""What a run says: findings with stable codes, the rules that make them, and what to do about each."""
