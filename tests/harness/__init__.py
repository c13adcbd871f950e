"""What the tests across the process border share: real processes, a client, small servers."""
