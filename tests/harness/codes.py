"""Exit codes of a rank under test. Standard library only."""

PASS = 0
TEST_FAILURE = 10
SKIP = 77
