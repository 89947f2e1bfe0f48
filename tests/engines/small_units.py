"""In a child of the fork server: many units for little work."""


def cut(members=50, questions=16):
    """Units of an enumeration with so many members, and of a recitation with so many questions."""
    from coalmine.audits.recitation import answers
    from coalmine.search.walks import enumeration

    answers.AT_A_TIME, enumeration.UNIT_MEMBERS = questions, members
