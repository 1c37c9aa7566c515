"""What every store must do, whatever it is made of."""
