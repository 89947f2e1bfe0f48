"""Whose data is it? Features and scores of users from what a model says of their tokens, p-values, and how well users are found."""
