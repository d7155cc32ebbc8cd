"""Simulates the steps of an nsys trace with one change, and so predicts what the change would gain.

As Daydream does (Zhu et al., USENIX ATC 2020): what the CPU called and what the GPU ran for it become a program of
durations and of what waits for what; a change is made to the program, and the program is run again.

  events    reads a trace: calls, operations on the GPU, events, synchronisations, process by process
  program   what a program is, and how one is made of events
  waiting   which calls waited, and for what
  bounds    what each operation on the GPU waited for
  rerun     runs a program
  changes   what could be changed, as functions from a program to another
  gains     what a change would be worth, with its interval
  tax       what the CPU's time went to
  tables    the two tables of a cell
"""
