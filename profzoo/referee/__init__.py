"""Answers for programs: verdicts, plans and comparisons as claims, and a referee between two states of a program."""
