"""Simulates the steps of an nsys trace with one change, and so predicts what the change would gain.

The method follows Daydream (Zhu et al., USENIX ATC 2020). The calls of the CPU and the operations of the GPU become a
program: durations, and which of them waits for which. A change is made to the program, and the program is simulated.

  trace_events     reads a trace: calls, GPU operations, CUDA events and synchronisations, by process
  program          makes a program from events
  blocking_calls   finds which calls waited, and for what
  dependencies     finds what each GPU operation waited for
  simulator        runs a program
  changes          changes a program, as functions from one program to another
  blocking_changes removes waits of single calls, as a change
  graph_obstacles  finds what prevents a CUDA graph of the step
  predicted_gains  predicts what a change gains, with its interval
  host_time        splits the CPU's time by cause
  tables           makes the two tables of a cell
"""
