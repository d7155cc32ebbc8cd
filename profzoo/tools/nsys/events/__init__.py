"""What nsys recorded, in one form: operations, calls, ranges, threads and samples."""
