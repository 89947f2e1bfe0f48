"""Did the canaries reach the loss of the training?"""
