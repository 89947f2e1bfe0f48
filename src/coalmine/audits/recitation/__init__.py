"""How much of its training data does a model recite?"""
