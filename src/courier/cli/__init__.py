"""The command line. Apart from `serve` it is an ordinary caller: it speaks HTTP."""
