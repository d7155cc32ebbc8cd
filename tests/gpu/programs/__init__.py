"""Models of users whose steps are of other kinds than those of the zoo: what tools have to cope with."""
