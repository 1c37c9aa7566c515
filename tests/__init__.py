"""The tests. A package, so that two folders may hold files of one name."""
