"""What stops memorization, and what does it cost?"""
