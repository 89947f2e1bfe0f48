"""Can members be distinguished from non-members, and what does that say about epsilon?"""
