"""How does exposure grow during training?"""
