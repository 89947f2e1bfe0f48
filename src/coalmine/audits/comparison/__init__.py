"""Which of several trainings memorizes less?"""
