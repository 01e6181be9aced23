"""The glossary of a report, one line for each term."""

TERMS = (
    ("rank", "a process of the job, numbered from 0"),
    ("step", "one pass of the training loop, with what comes before it"),
    ("bucket", "the tensors that one call reduces together"),
    (
        "negotiate",
        "from the submission of a tensor until all ranks have agreed on it",
    ),
    ("queue", "from then until the tensor's bucket is begun"),
    ("execute", "while a bucket runs"),
    ("wait", "while a bucket that runs waits for bytes of other ranks"),
    ("pack", "copying tensors to where other ranks read them"),
    ("reduce", "combining numbers of ranks"),
    ("unpack", "copying results into tensors"),
    ("callback", "finishing the framework's operations"),
    (
        "last, late",
        "of all ranks the last to be ready with a bucket; by how much it came"
        " after the first",
    ),
    (
        "hidden",
        "communication in a step that still computes; the rest comes after its"
        " last tensor was submitted, or between two steps",
    ),
    ("data", "the program waits for its input pipeline"),
    (
        "clock",
        "all times are by rank 0's clock; by how much those of a host may be"
        " wrong",
    ),
)
