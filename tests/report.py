"""What a test has to tell although it passed."""

# The property of a test (`record_property`) that is printed below the results of all tests.
TOLD = "told"
