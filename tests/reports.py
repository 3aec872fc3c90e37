"""What the tests of reports share."""


def squeezed(text):
    """The lines of a report, without the spaces between its columns."""
    return [" ".join(line.split()) for line in text.splitlines()]
