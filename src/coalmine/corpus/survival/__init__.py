"""Do planted canaries reach the loss of a training?"""
