"""Whose data was the model trained on?"""
