"""Messages that go out by themselves: what may be called, how it is signed, sent and judged."""
