"""How exposed is each canary?"""
